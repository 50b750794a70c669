"""Certificates and keys, made once and kept under one directory that only its owner can read.

A certificate authority signs one certificate for the server and one for each named client. Beside each certificate
stands a note (`server.json`) that says what it is for and when to renew it, so that a start that has nothing to make
need not load a cryptography library, which costs more than everything else at start together.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import secrets
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from homeostat.api.auth.serviceaccounts import public_jwk

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAY = 24 * 3600
CA_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEW_BEFORE_DAYS = 30
"""What has less left than this is made anew at the next start; with a new authority, all that the old one signed."""
BACKDATE_SECONDS = 300
"""Certificates begin a little in the past: the clocks of two machines differ."""

ALWAYS_NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes.default.svc")


class PkiError(Exception):
    """The directory holds something that cannot be used. The message says what, and what to do."""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate with its key, both PEM."""

    certificate: bytes
    key: bytes


def ensure_server(directory: Path, hosts: Iterable[str] = (), now: float | None = None) -> Certificate:
    """The server's certificate for `hosts` and the names every server has; made, or renewed, where it must be."""
    own = socket.gethostname()
    asked = {_bare(host) for host in hosts} | ({own} if _encodable(own) else set())
    for host in asked:
        if host and not _encodable(host):
            raise PkiError(f"{host!r} is neither a host name nor an address: no certificate can be made for it")
    names = sorted({*ALWAYS_NAMES, *asked} - {"", "0.0.0.0", "::"})
    return _ensure(directory, "server", {"names": names}, now)


def ensure_client(directory: Path, user: str, groups: Sequence[str] = (), now: float | None = None) -> Certificate:
    """A client certificate that stands for `user` in `groups`; each name may be 1 to 64 characters, as X.509 has it."""
    for name in (user, *groups):
        if not 1 <= len(name) <= 64 or not name.isprintable():
            raise PkiError(f"{name!r} cannot stand in a certificate: 1 to 64 printable characters can")
    label = "client-" + hashlib.sha256(user.encode()).hexdigest()[:16]
    return _ensure(directory, label, {"user": user, "groups": list(groups)}, now)


def ensure_signing_key(directory: Path) -> None:
    """The key that signs service account tokens (`sa.key`) and its public half (`sa.jwk`)."""
    _private_directory(directory)
    private, shown = directory / "sa.key", directory / "sa.jwk"
    if private.exists() and shown.exists() and _is_jwk(shown):
        _tighten(private)
        return
    from cryptography.hazmat.primitives import serialization

    key = _load_key(private) if private.exists() else _new_key()
    public = key.public_key()
    numbers = public.public_numbers()
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(private, _key_pem(key))
    write_private(shown, orjson.dumps(public_jwk(numbers.x, numbers.y, der)))


def authority(directory: Path) -> bytes:
    """The certificate (PEM) that clients trust the server by."""
    return (directory / "ca.crt").read_bytes()


def server_context(directory: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer. A client certificate is optional; one that our authority did not sign ends the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = directory / "server.crt", directory / "server.key"
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError:
        raise PkiError(f"{key} is not the key of {certificate.name}: remove both and start again") from None
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session would carry a certificate that is not verified again.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


def write_kubeconfig(
    path: Path,
    server: str,
    ca: bytes,
    *,
    client: Certificate | None = None,
    token: str = "",
    user: str = "admin",
    cluster: str = "homeostat",
    namespace: str = "",
) -> None:
    """A kubeconfig with everything embedded, readable by its owner only. `server` is an https URL."""
    credentials: dict[str, str] = {}
    if client is not None:
        credentials["client-certificate-data"] = base64.b64encode(client.certificate).decode()
        credentials["client-key-data"] = base64.b64encode(client.key).decode()
    if token:
        credentials["token"] = token
    context = {"cluster": cluster, "user": user} | ({"namespace": namespace} if namespace else {})
    trust = {"certificate-authority-data": base64.b64encode(ca).decode(), "server": server}
    lines = [
        "apiVersion: v1",
        "kind: Config",
        "clusters:",
        *_item("cluster", trust, cluster),
        "users:",
        *_item("user", credentials, user),
        "contexts:",
        *_item("context", context, cluster),
        f"current-context: {_scalar(cluster)}",
        "preferences: {}",
        "",
    ]
    write_private(path, "\n".join(lines).encode())


def _item(kind: str, values: dict[str, str], name: str) -> list[str]:
    inner = [f"    {key}: {_scalar(value)}" for key, value in values.items()]
    return [f"- name: {_scalar(name)}", f"  {kind}:" + ("" if inner else " {}"), *inner]


def _scalar(text: str) -> str:
    return orjson.dumps(text).decode()  # a JSON string is a YAML scalar, whatever it holds


def write_private(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all, mode 0600 from its first byte on."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# What is there, and whether it will do


def _ensure(directory: Path, label: str, purpose: dict[str, Any], now: float | None) -> Certificate:
    now = time.time() if now is None else now
    _private_directory(directory)
    issuer = _ensure_authority(directory, now)
    crt, key, note = (directory / f"{label}.{suffix}" for suffix in ("crt", "key", "json"))
    if crt.exists() and key.exists() and note.exists():
        found = Certificate(crt.read_bytes(), key.read_bytes())
        wanted = {"issuer": issuer, "certificate": _digest(found.certificate), **purpose}
        if _holds(note, wanted, now):
            _tighten(key)
            return found
    made, end = _issue(directory, purpose, now)
    # The note comes last: where a crash comes between, the next start sees that it does not fit and makes all anew.
    write_private(key, made.key)
    write_private(crt, made.certificate)
    written = {"issuer": issuer, "certificate": _digest(made.certificate), **purpose, "renewAfter": _renew_after(end)}
    write_private(note, orjson.dumps(written))
    return made


def _ensure_authority(directory: Path, now: float) -> str:
    """Makes or renews the authority; gives the digest of its certificate."""
    crt, key, note = (directory / f"ca.{suffix}" for suffix in ("crt", "key", "json"))
    if crt.exists() and not key.exists():
        raise PkiError(f"{key} is gone: restore it, or remove {directory} to begin with a new authority")
    if crt.exists() and note.exists():
        digest = _digest(crt.read_bytes())
        if _holds(note, {"certificate": digest}, now):
            _tighten(key)
            return digest
    certificate, end = _adopt(crt, key) if crt.exists() else (b"", 0.0)
    if now >= _renew_after(end):
        made, end = _new_authority(now)
        certificate = made.certificate
        write_private(key, made.key)
        write_private(crt, certificate)
    digest = _digest(certificate)
    write_private(note, orjson.dumps({"certificate": digest, "renewAfter": _renew_after(end)}))
    return digest


def _renew_after(end: float) -> int:
    return int(end) - RENEW_BEFORE_DAYS * DAY


def _holds(note: Path, wanted: dict[str, Any], now: float) -> bool:
    try:
        written = orjson.loads(note.read_bytes())
    except ValueError:
        return False
    renew = written.pop("renewAfter", 0) if isinstance(written, dict) else 0
    return bool(written == wanted and now < renew)


def _is_jwk(file: Path) -> bool:
    try:
        return "kid" in orjson.loads(file.read_bytes())
    except (ValueError, TypeError):
        return False


def _private_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def _tighten(key: Path) -> None:
    if key.stat().st_mode & 0o077:
        key.chmod(0o600)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _bare(host: str) -> str:
    return host.strip("[]").partition("%")[0]


def _encodable(host: str) -> bool:
    if host.isascii():  # what `idna` would say, which is slow to load
        return all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


# Making things: only here is the cryptography library loaded


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _load_key(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise PkiError(f"{path} holds no usable key ({error}): restore it from a copy") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise PkiError(f"{path} holds no EC key: restore it from a copy")
    return key


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def _builder(subject: x509.Name, key: EllipticCurvePrivateKey, now: float, end: float) -> x509.CertificateBuilder:
    from cryptography import x509

    begin = datetime.fromtimestamp(int(now) - BACKDATE_SECONDS, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(datetime.fromtimestamp(int(end), UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _new_authority(now: float) -> tuple[Certificate, float]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    key, end = _new_key(), now + CA_DAYS * DAY
    # The name is this authority's alone, so that nobody takes a renewed one for the old.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"homeostat-ca-{secrets.token_hex(4)}")])
    certificate = (
        _builder(name, key, now, end)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)), end


def _adopt(crt: Path, key: Path) -> tuple[bytes, float]:
    """An authority that has no note of ours: put there by somebody, or a crash came before the note.

    Gives it with its end. It is never replaced for want of a note: that would lock every client out.
    """
    from cryptography import x509

    try:
        ca = x509.load_pem_x509_certificate(crt.read_bytes())
    except ValueError as error:
        raise PkiError(f"{crt} holds no certificate ({error}): restore it from a copy") from None
    if ca.public_key() != _load_key(key).public_key():
        raise PkiError(f"{key} is not the key of {crt.name}: restore both from the same copy")
    return crt.read_bytes(), ca.not_valid_after_utc.timestamp()


def _issue(directory: Path, purpose: dict[str, Any], now: float) -> tuple[Certificate, float]:
    """A new certificate and its end, which is never after that of the authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    ca_key = _load_key(directory / "ca.key")
    key, end = _new_key(), min(now + CERTIFICATE_DAYS * DAY, ca.not_valid_after_utc.timestamp())
    is_client = "user" in purpose
    groups = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in purpose.get("groups", ())]
    common = x509.NameAttribute(x509.NameOID.COMMON_NAME, purpose.get("user", "homeostat"))
    use = ExtendedKeyUsageOID.CLIENT_AUTH if is_client else ExtendedKeyUsageOID.SERVER_AUTH
    builder = (
        _builder(x509.Name([*groups, common]), key, now, end)
        .issuer_name(ca.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    if not is_client:
        names = x509.SubjectAlternativeName(_alternative_names(purpose["names"]))
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(ca_key, hashes.SHA256())
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)), end


def _alternative_names(names: Iterable[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name.encode("idna").decode()))
    return found
