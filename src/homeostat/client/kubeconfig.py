"""Where the server is and who we are to it: from kubeconfig files, or from the files that a pod finds in a cluster."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
EXEC_V1 = "client.authentication.k8s.io/v1"
"""The protocol between us and an exec plugin."""


class ConfigError(Exception):
    """A configuration that cannot be used. The message says which file and field, and what to do."""


class Exec(msgspec.Struct, frozen=True):
    """A program that gives credentials, as client-go calls it."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    api_version: str = EXEC_V1
    install_hint: str = ""
    provide_cluster_info: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """One server and the way in. `source` names the file for messages."""

    server: str
    source: str = ""
    namespace: str = DEFAULT_NAMESPACE
    authority: bytes = b""
    insecure: bool = False
    tls_server_name: str = ""
    certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    exec: Exec | None = None
    act_as: Sequence[tuple[str, str]] = ()
    """Headers by which the user acts as somebody else."""


def from_kubeconfig(
    path: str | os.PathLike[str] | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Target:
    """Reads a kubeconfig: `path`, else the files of $KUBECONFIG merged, else ~/.kube/config.

    `context` is the current one where not said. Of files that are merged the first that names a thing wins; those
    that do not exist are passed over, unless none does. Raises `ConfigError`.
    """
    files = kubeconfig_files(path, environ)
    merged = _merge([(file, _read(file)) for file in files if path is not None or file.exists()])
    shown = ":".join(map(str, files))
    if merged is None:
        raise ConfigError(f"no kubeconfig found: {shown} does not exist")
    return _chosen(merged, shown, context)


def from_text(text: bytes, source: str, context: str | None = None) -> Target:
    """Reads a kubeconfig that somebody else wrote, from a Secret say. `source` names it in messages. Raises `ConfigError`.

    It must have everything in itself: one that would have a program run here or a file of this machine read is refused.
    """
    place = Path(source)
    document = _parse(text, place)
    for plural, singular in (("clusters", "cluster"), ("users", "user")):
        for item in document.get(plural) or ():
            found = (item.get(singular) or {}) if isinstance(item, dict) else {}
            if reaching := [name for name in _REACHES_OUT if found.get(name)]:
                hint = "embed it as ...-data" if reaching[0].startswith(("client-", "certificate-")) else "use a token"
                raise ConfigError(f"{source}: {reaching[0]} is refused, for it reaches into the machine: {hint}")
    merged = _merge([(place, document)])
    assert merged is not None
    return _chosen(merged, source, context)


_REACHES_OUT = ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key", "certificate-authority")


def _chosen(merged: _Merged, shown: str, context: str | None) -> Target:
    name = context or merged.current
    if not name:
        known = ", ".join(sorted(merged.contexts)) or "none"
        raise ConfigError(f"{shown} has no current-context: name one of its contexts ({known})")
    if name not in merged.contexts:
        known = ", ".join(sorted(merged.contexts)) or "none"
        raise ConfigError(f'{shown} has no context "{name}"; it has: {known}')
    _, chosen = merged.contexts[name]
    cluster_name, user_name = chosen.get("cluster", ""), chosen.get("user", "")
    if cluster_name not in merged.clusters:
        raise ConfigError(f'{shown}: context "{name}" names the cluster "{cluster_name}", which is not there')
    target = _cluster(*merged.clusters[cluster_name])
    if user_name:
        if user_name not in merged.users:
            raise ConfigError(f'{shown}: context "{name}" names the user "{user_name}", which is not there')
        target = _user(target, *merged.users[user_name])
    return replace(target, namespace=chosen.get("namespace") or DEFAULT_NAMESPACE)


def kubeconfig_files(path: str | os.PathLike[str] | None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that `from_kubeconfig` would read."""
    if path is not None:
        return [Path(path).expanduser()]
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path(environ.get("HOME") or Path.home()) / ".kube" / "config"]


def in_cluster(environ: Mapping[str, str] = os.environ, root: Path = SERVICE_ACCOUNT) -> Target:
    """The API server of the cluster around this process, by its service account. The token is read anew each minute."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token = root / "token"
    authority, namespace = _bytes(root / "ca.crt"), _bytes(root / "namespace").decode().strip()
    if not token.exists():
        raise ConfigError(f"not in a cluster: {token} does not exist")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Target(
        server,
        source=str(root),
        namespace=namespace or DEFAULT_NAMESPACE,
        authority=authority,
        token_file=token,
    )


class _Merged(msgspec.Struct):
    clusters: dict[str, tuple[Path, dict[str, Any]]]
    users: dict[str, tuple[Path, dict[str, Any]]]
    contexts: dict[str, tuple[Path, dict[str, Any]]]
    current: str = ""


def _merge(documents: list[tuple[Path, dict[str, Any]]]) -> _Merged | None:
    if not documents:
        return None
    merged = _Merged({}, {}, {})
    for file, document in documents:
        merged.current = merged.current or document.get("current-context") or ""
        for plural, singular, known in (
            ("clusters", "cluster", merged.clusters),
            ("users", "user", merged.users),
            ("contexts", "context", merged.contexts),
        ):
            for item in document.get(plural) or ():
                if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                    raise ConfigError(f"{file}: every item of {plural} needs a name")
                known.setdefault(item["name"], (file, item.get(singular) or {}))
    return merged


def _read(file: Path) -> dict[str, Any]:
    return _parse(_bytes(file), file)


def _parse(text: bytes, file: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{file} is not a kubeconfig: it holds no mapping")
    return document


def _cluster(file: Path, cluster: dict[str, Any]) -> Target:
    server = cluster.get("server") or ""
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"{file}: the cluster's server must be an https:// or http:// URL, not {server!r}")
    if cluster.get("proxy-url"):
        raise ConfigError(f"{file}: proxy-url is not supported: remove it, or reach {server} without a proxy")
    insecure = bool(cluster.get("insecure-skip-tls-verify"))
    authority = _data(file, cluster, "certificate-authority")
    if insecure and authority:
        raise ConfigError(f"{file}: a certificate authority and insecure-skip-tls-verify exclude each other")
    return Target(
        server,
        source=str(file),
        authority=authority,
        insecure=insecure,
        tls_server_name=cluster.get("tls-server-name") or "",
    )


def _user(target: Target, file: Path, user: dict[str, Any]) -> Target:
    if user.get("auth-provider"):
        raise ConfigError(f"{file}: auth-provider was removed from Kubernetes clients: use an exec plugin instead")
    certificate, key = _data(file, user, "client-certificate"), _data(file, user, "client-key")
    if bool(certificate) != bool(key):
        raise ConfigError(f"{file}: client-certificate and client-key belong together; one is missing")
    basic = (user["username"], user.get("password") or "") if user.get("username") else None
    token_file = user.get("tokenFile")
    return replace(
        target,
        source=str(file),
        certificate=(certificate, key) if certificate else None,
        # A token file is re-read, so it wins over a token that was copied from it, as in client-go.
        token="" if token_file else user.get("token") or "",
        token_file=file.parent / token_file if token_file else None,
        basic=basic,
        exec=_exec(file, user["exec"]) if user.get("exec") else None,
        act_as=_act_as(user),
    )


def _exec(file: Path, spec: dict[str, Any]) -> Exec:
    command = spec.get("command") or ""
    if not command:
        raise ConfigError(f"{file}: exec needs a command")
    if os.sep in command:
        command = str(file.parent / command)
    version = spec.get("apiVersion") or EXEC_V1
    if version not in (EXEC_V1, f"{EXEC_V1}beta1"):
        raise ConfigError(f"{file}: exec apiVersion {version} is not supported: use {EXEC_V1}")
    return Exec(
        command,
        tuple(map(str, spec.get("args") or ())),
        {item["name"]: str(item.get("value", "")) for item in spec.get("env") or ()},
        version,
        spec.get("installHint") or "",
        bool(spec.get("provideClusterInfo")),
    )


def _act_as(user: dict[str, Any]) -> list[tuple[str, str]]:
    headers = [("Impersonate-User", user["as"])] if user.get("as") else []
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", user["as-uid"]))
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return headers


def _data(file: Path, section: dict[str, Any], name: str) -> bytes:
    """`NAME-data` in base64, or the content of the file that `NAME` names, relative to the kubeconfig."""
    inline = section.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ConfigError(f"{file}: {name}-data is not base64: {error}") from None
    named = section.get(name)
    return _bytes(file.parent / named) if named else b""


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
