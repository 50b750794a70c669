"""Where the server is and who we are to it."""

from __future__ import annotations

import base64
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from homeostat.api.auth import pki
from homeostat.api.server import Server
from homeostat.client import Client, ConfigError, Unreachable
from homeostat.client.credentials import Credentials
from homeostat.client.kubeconfig import Target, from_kubeconfig, in_cluster
from homeostat.model.errors import ApiError


def write(
    path: Path,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    *,
    name: str = "one",
    current: str | None = None,
    **context: str,
) -> Path:
    document = {
        "clusters": [{"name": name, "cluster": {"server": "https://h:1", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
        "current-context": name if current is None else current,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_file_says_all(tmp_path: Path) -> None:
    ca = base64.b64encode(b"PEM").decode()
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "c.crt").write_text("CRT")
    (tmp_path / "certs" / "c.key").write_text("KEY")
    user = {"client-certificate": "certs/c.crt", "client-key": "certs/c.key", "as": "ada", "as-groups": ["a", "b"]}
    cluster = {"certificate-authority-data": ca, "tls-server-name": "inside"}
    target = from_kubeconfig(write(tmp_path / "config", cluster, user, namespace="shop"))
    assert (target.server, target.namespace, target.authority) == ("https://h:1", "shop", b"PEM")
    assert target.certificate == (b"CRT", b"KEY")  # relative to the file
    assert target.tls_server_name == "inside"
    assert list(target.act_as) == [("Impersonate-User", "ada"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")]


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "1", {"server": "https://first:1"}, {"token": "t1"}, name="x", current="")
    second = write(tmp_path / "2", {"server": "https://second:1"}, {"token": "t2"}, name="x")
    third = write(tmp_path / "3", {"server": "https://third:1"}, {"token": "t3"}, name="y")
    environ = {"KUBECONFIG": f"{first}:{tmp_path / 'missing'}::{second}:{third}"}
    assert (from_kubeconfig(environ=environ).server, from_kubeconfig(environ=environ).token) == ("https://first:1", "t1")
    assert from_kubeconfig(context="y", environ=environ).token == "t3"


def test_without_a_word_it_is_the_home_directorys(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config")
    assert from_kubeconfig(environ={"HOME": str(tmp_path)}).server == "https://h:1"
    with pytest.raises(ConfigError, match="does not exist"):
        from_kubeconfig(environ={"HOME": str(tmp_path / "elsewhere")})


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"proxy-url": "http://p"}, {}, "proxy-url is not supported"),
        ({"server": "h:1"}, {}, "must be an https:// or http:// URL"),
        ({"certificate-authority": "none.crt"}, {}, "No such file"),
        ({"certificate-authority-data": "%%"}, {}, "certificate-authority-data is not base64"),
        ({"certificate-authority-data": "AAAA", "insecure-skip-tls-verify": True}, {}, "exclude each other"),
        ({}, {"client-certificate-data": "AAAA"}, "belong together"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider was removed"),
        ({}, {"exec": {"args": []}}, "exec needs a command"),
        ({}, {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "is not supported"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        from_kubeconfig(write(tmp_path / "config", cluster, user))
    assert str(tmp_path) in str(error.value)


def test_a_context_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    file = write(tmp_path / "config")
    with pytest.raises(ConfigError, match='no context "two"; it has: one'):
        from_kubeconfig(file, "two")
    file.write_text("{ not yaml")
    with pytest.raises(ConfigError, match="is not YAML"):
        from_kubeconfig(file)
    file.write_text("- a")
    with pytest.raises(ConfigError, match="is not a kubeconfig"):
        from_kubeconfig(file)
    file.write_text("")
    with pytest.raises(ConfigError, match="no current-context"):
        from_kubeconfig(file)


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    now = 0.0
    credentials = Credentials(Target("https://h", token_file=tmp_path / "token"), now=lambda: now)
    assert (await credentials.current()).headers == [("Authorization", "Bearer one")]
    (tmp_path / "token").write_text("two")
    assert (await credentials.current()).headers == [("Authorization", "Bearer one")]
    now = 61.0
    assert (await credentials.current()).headers == [("Authorization", "Bearer two")]
    (tmp_path / "token").write_text("three")
    credentials.forget()
    assert (await credentials.current()).headers == [("Authorization", "Bearer three")]


def plugin(tmp_path: Path, code: str) -> dict[str, Any]:
    """An exec plugin in Python: `code` prints what it has to say."""
    file = tmp_path / "plugin"
    file.write_text(f"#!{sys.executable}\nimport json, os, sys\ninfo = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n{code}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    return {"command": "./plugin", "apiVersion": version, "args": ["a"], "env": [{"name": "E", "value": "e"}]}


async def test_an_exec_plugin_is_asked_until_its_answer_expires(tmp_path: Path) -> None:
    code = """
with open(os.path.join(os.path.dirname(__file__), "count"), "a") as f: f.write("x")
n = os.path.getsize(os.path.join(os.path.dirname(__file__), "count"))
status = {"token": f"{sys.argv[1]}{os.environ['E']}{n}", "expirationTimestamp": "2026-01-01T00:00:00Z"}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""
    target = from_kubeconfig(write(tmp_path / "config", user={"exec": plugin(tmp_path, code)}))
    expiry = 1767225600.0
    now = expiry - 100
    credentials = Credentials(target, now=lambda: now)
    assert (await credentials.current()).headers == [("Authorization", "Bearer ae1")]
    assert (await credentials.current()).headers == [("Authorization", "Bearer ae1")]
    now = expiry - 5
    assert (await credentials.current()).headers == [("Authorization", "Bearer ae2")]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit(3)", "failed with exit status 3"),
        ("print('hello')", "did not print an ExecCredential"),
        ("print(json.dumps({'apiVersion': 'v9', 'status': {'token': 'x'}}))", "answered in v9"),
        ("print(json.dumps({'apiVersion': info['apiVersion'], 'status': {}}))", "neither a token nor a certificate"),
    ],
)
async def test_an_exec_plugin_that_fails_is_named(tmp_path: Path, code: str, said: str) -> None:
    target = from_kubeconfig(write(tmp_path / "config", user={"exec": plugin(tmp_path, code)}))
    with pytest.raises(ConfigError, match=said):
        await Credentials(target).current()


async def test_an_exec_plugin_that_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    spec = {"command": "no-such-plugin", "installHint": "get it at the shop"}
    target = from_kubeconfig(write(tmp_path / "config", user={"exec": spec}))
    with pytest.raises(ConfigError, match="get it at the shop"):
        await Credentials(target).current()


def test_in_a_cluster_the_service_account_says_all(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", "PEM"), ("namespace", "mine\n")):
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    target = in_cluster(environ, tmp_path)
    assert (target.server, target.namespace) == ("https://[fd00::1]:443", "mine")
    assert target.token_file == tmp_path / "token"
    with pytest.raises(ConfigError, match="not in a cluster"):
        in_cluster({}, tmp_path)


# On a real server


async def test_a_plugins_certificate_opens_the_server(server: Server, tmp_path: Path) -> None:
    admin = pki.ensure_client(server.data / "pki", "admin", ["system:masters"])
    status = {"clientCertificateData": admin.certificate.decode(), "clientKeyData": admin.key.decode()}
    code = f"print(json.dumps({{'apiVersion': info['apiVersion'], 'status': {status!r}}}))"
    cluster = {"server": server.url, "certificate-authority": str(server.data / "pki" / "ca.crt")}
    file = write(tmp_path / "config", cluster, {"exec": plugin(tmp_path, code)})
    async with Client.from_kubeconfig(file) as client:
        assert await client.kind("v1", "Namespace").get("default")


async def test_a_refused_token_is_read_again_at_once(server: Server, tmp_path: Path) -> None:
    async with Client.from_kubeconfig(server.kubeconfig) as admin:
        tokens = admin.kind("homeostat.dev/v1", "UserToken")
        made = await tokens.create({"metadata": {"name": "t"}, "spec": {"user": "ada", "groups": ["system:masters"]}})
    (tmp_path / "token").write_text("stale")
    cluster = {"server": server.url, "certificate-authority": str(server.data / "pki" / "ca.crt")}
    async with Client.from_kubeconfig(write(tmp_path / "c", cluster, {"tokenFile": "token"})) as client:
        with pytest.raises(ApiError) as refused:
            await client.version()
        assert refused.value.code == 401
        (tmp_path / "token").write_text(made["status"]["token"])
        assert await client.version()


async def test_who_is_refused_hears_whether_the_token_expired_and_what_to_do(server: Server, tmp_path: Path) -> None:
    cluster = {"server": server.url, "certificate-authority": str(server.data / "pki" / "ca.crt")}

    async def told(user: dict[str, Any]) -> str:
        async with Client.from_kubeconfig(write(tmp_path / "c", cluster, user)) as client:
            with pytest.raises(ApiError) as refused:
                await client.version()
        assert refused.value.code == 401
        return refused.value.message

    claims = base64.urlsafe_b64encode(b'{"exp":1580472000}').decode().rstrip("=")
    assert f"the token in {tmp_path / 'c'} expired at 2020-01-31T12:00:00Z: make another" in await told({"token": f"e30.{claims}.c2ln"})
    for opaque in ("hst_" + "x" * 43, "a.b.c", "e30.e30.c2ln"):
        assert "is not taken: it expired, was revoked or is for another server; `homeostat token create`" in await told({"token": opaque})
    assert "has no token and no client certificate" in await told({})


async def test_whom_to_trust_matters(server: Server, tmp_path: Path) -> None:
    stranger = pki.ensure_server(tmp_path / "other")
    assert stranger
    ca = str(tmp_path / "other" / "ca.crt")
    wrong = write(tmp_path / "wrong", {"server": server.url, "certificate-authority": ca})
    async with Client.from_kubeconfig(wrong, attempts=1) as client:
        with pytest.raises(Unreachable, match="is not trusted"):
            await client.version()
    any_name = {"server": server.url, "insecure-skip-tls-verify": True}
    async with Client.from_kubeconfig(write(tmp_path / "any", any_name)) as client:
        with pytest.raises(ApiError) as nobody:
            await client.version()
        assert nobody.value.code == 401
    ours = str(server.data / "pki" / "ca.crt")
    named = {"server": server.url, "certificate-authority": ours, "tls-server-name": "not.the.name"}
    async with Client.from_kubeconfig(write(tmp_path / "named", named), attempts=1) as client:
        with pytest.raises(Unreachable, match="is not trusted"):
            await client.version()


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "config", {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True})
    async with Client.from_kubeconfig(file, attempts=1) as client:
        with pytest.raises(Unreachable, match=r"cannot reach https://127.0.0.1:1"):
            await client.version()


def test_credentials_do_not_show_in_messages(tmp_path: Path) -> None:
    target = from_kubeconfig(write(tmp_path / "config", user={"token": "very-secret"}))
    assert "very-secret" not in repr(target)
