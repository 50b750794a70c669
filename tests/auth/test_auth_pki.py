"""Certificates: made once, kept private, renewed in time, and trusted over a real TLS connection."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from homeostat.api.auth import pki
from homeostat.api.auth.authenticate import identify

YEAR = 365 * 24 * 3600


def client_context(directory: Path, client: pki.Certificate | None, scratch: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2", "http/1.1"])
    if client:
        (scratch / "c.crt").write_bytes(client.certificate)
        (scratch / "c.key").write_bytes(client.key)
        context.load_cert_chain(scratch / "c.crt", scratch / "c.key")
    return context


def meet(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> dict[str, Any]:
    """A handshake over loopback; gives what the server saw, and why it refused where it did."""
    seen: dict[str, Any] = {}

    def serve(listener: socket.socket) -> None:
        raw, _ = listener.accept()
        try:
            with server.wrap_socket(raw, server_side=True) as tls:
                seen.update(cert=tls.getpeercert(), version=tls.version(), alpn=tls.selected_alpn_protocol())
                tls.sendall(b"hello")
        except OSError as error:
            seen["error"] = error

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with (
            contextlib.suppress(OSError),
            socket.create_connection(listener.getsockname(), timeout=5) as raw,
            client.wrap_socket(raw, server_hostname=name) as tls,
        ):
            seen["heard"] = tls.recv(5)  # in TLS 1.3 a refused certificate shows at the first read
        thread.join(timeout=5)
    return seen


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc", socket.gethostname()])
def test_the_server_certificate_is_valid_for_every_name_it_is_reached_by(
    pki_directory: Path, tmp_path: Path, name: str
) -> None:
    seen = meet(pki.server_context(pki_directory), client_context(pki_directory, None, tmp_path), name)
    assert seen["heard"] == b"hello"
    assert not seen["cert"]
    assert seen["alpn"] == "http/1.1"


def test_a_client_certificate_says_who_calls_and_in_which_groups(pki_directory: Path, tmp_path: Path) -> None:
    client = pki.ensure_client(pki_directory, "alice", ["dev", "ops"])
    seen = meet(pki.server_context(pki_directory), client_context(pki_directory, client, tmp_path))
    peer = identify(seen["cert"])
    assert peer is not None
    assert peer.user.name == "alice"
    assert peer.user.groups == ("dev", "ops", "system:authenticated")


def test_a_certificate_with_the_same_name_from_another_authority_is_refused(
    pki_directory: Path, tmp_path: Path
) -> None:
    forged = pki.ensure_client(tmp_path / "other", "admin", ["system:masters"])
    seen = meet(pki.server_context(pki_directory), client_context(pki_directory, forged, tmp_path))
    assert "unable to get local issuer certificate" in str(seen["error"])
    assert not seen.get("heard")


def test_the_server_certificate_cannot_be_used_as_a_client(pki_directory: Path, tmp_path: Path) -> None:
    server = pki.ensure_server(pki_directory)
    seen = meet(pki.server_context(pki_directory), client_context(pki_directory, server, tmp_path))
    assert "unsuitable certificate purpose" in str(seen["error"])
    assert not seen.get("heard")


def test_a_client_certificate_cannot_sign_another(pki_directory: Path) -> None:
    from cryptography import x509

    client = pki.ensure_client(pki_directory, "mallory")
    certificate = x509.load_pem_x509_certificate(client.certificate)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_an_expired_client_certificate_is_refused(pki_directory: Path, tmp_path: Path) -> None:
    expired = pki.ensure_client(pki_directory, "late", now=time.time() - 2 * YEAR)
    seen = meet(pki.server_context(pki_directory), client_context(pki_directory, expired, tmp_path))
    assert "certificate has expired" in str(seen["error"])
    assert not seen.get("heard")


def test_tls_1_1_is_refused(pki_directory: Path, tmp_path: Path) -> None:
    old = client_context(pki_directory, None, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")  # or the client itself would not even offer it
    seen = meet(pki.server_context(pki_directory), old)
    assert "unsupported protocol" in str(seen["error"]).replace("_", " ").lower()
    assert not seen.get("heard")


def test_everything_is_readable_by_the_owner_only(pki_directory: Path) -> None:
    assert pki_directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in pki_directory.iterdir()} == {0o600}


def test_loose_permissions_are_tightened_at_the_next_start(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    pki.ensure_server(directory)
    directory.chmod(0o755)
    (directory / "ca.key").chmod(0o644)
    (directory / "server.key").chmod(0o640)
    pki.ensure_server(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "ca.key").stat().st_mode & 0o777 == 0o600
    assert (directory / "server.key").stat().st_mode & 0o777 == 0o600


def test_a_second_start_makes_nothing_and_loads_no_cryptography(pki_directory: Path) -> None:
    pki.ensure_client(pki_directory, "kubernetes-admin", ["system:masters"])
    before = {path: path.stat().st_mtime_ns for path in pki_directory.iterdir()}
    script = f"""
import sys
from pathlib import Path
from homeostat.api.auth import pki, serviceaccounts
directory = Path({str(pki_directory)!r})
pki.ensure_server(directory)
pki.ensure_client(directory, "kubernetes-admin", ["system:masters"])
pki.ensure_signing_key(directory)
pki.server_context(directory)
serviceaccounts.SigningKey(directory)
sys.exit("cryptography" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
    assert {path: path.stat().st_mtime_ns for path in pki_directory.iterdir()} == before


def test_a_certificate_near_its_end_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    first = pki.ensure_server(tmp_path, now=1_000_000_000)
    authority = pki.authority(tmp_path)
    assert pki.ensure_server(tmp_path, now=1_000_000_000 + YEAR - 40 * pki.DAY) == first
    assert pki.ensure_server(tmp_path, now=1_000_000_000 + YEAR - 20 * pki.DAY) != first
    assert pki.authority(tmp_path) == authority


def test_another_listen_address_gets_a_certificate_for_it(tmp_path: Path) -> None:
    from cryptography import x509

    first = pki.ensure_server(tmp_path)
    second = pki.ensure_server(tmp_path, ["10.1.2.3", "[fd00::1]", "api.example.com"])
    assert second != first
    names = x509.load_pem_x509_certificate(second.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "api.example.com" in names.value.get_values_for_type(x509.DNSName)
    assert {"10.1.2.3", "fd00::1"} <= {str(ip) for ip in names.value.get_values_for_type(x509.IPAddress)}


def test_an_authority_near_its_end_is_renewed_with_all_that_it_signed(tmp_path: Path) -> None:
    client = pki.ensure_client(tmp_path, "alice", now=1_000_000_000)
    authority = pki.authority(tmp_path)
    later = 1_000_000_000 + 10 * YEAR - 20 * pki.DAY
    assert pki.ensure_client(tmp_path, "alice", now=later) != client
    assert pki.authority(tmp_path) != authority


def test_nothing_outlives_the_authority_that_signed_it(tmp_path: Path) -> None:
    from cryptography import x509

    pki.ensure_server(tmp_path, now=1_000_000_000)
    late = pki.ensure_client(tmp_path, "alice", now=1_000_000_000 + 10 * YEAR - 100 * pki.DAY)
    client, authority = map(x509.load_pem_x509_certificate, (late.certificate, pki.authority(tmp_path)))
    assert client.not_valid_after_utc <= authority.not_valid_after_utc


def test_a_damaged_certificate_is_made_anew_but_an_authority_never_silently(tmp_path: Path) -> None:
    good = pki.ensure_server(tmp_path)
    (tmp_path / "server.crt").write_bytes(b"half a certif")
    assert pki.ensure_server(tmp_path).certificate.startswith(b"-----BEGIN")
    (tmp_path / "ca.crt").write_bytes(b"half a certif")
    with pytest.raises(pki.PkiError, match="restore it"):
        pki.ensure_server(tmp_path)
    assert (tmp_path / "ca.crt").read_bytes() == b"half a certif"
    assert good


def test_a_damaged_server_key_is_reported_with_what_to_do(tmp_path: Path) -> None:
    pki.ensure_server(tmp_path)
    (tmp_path / "server.key").write_text("rubbish")
    with pytest.raises(pki.PkiError, match=r"server\.key is not the key of server\.crt: remove both and start again"):
        pki.server_context(tmp_path)
    (tmp_path / "server.key").unlink()
    (tmp_path / "server.crt").unlink()
    pki.ensure_server(tmp_path)
    assert pki.server_context(tmp_path)


def test_a_damaged_public_half_of_the_signing_key_is_made_again_from_the_key(tmp_path: Path) -> None:
    pki.ensure_signing_key(tmp_path)
    key, public = (tmp_path / "sa.key").read_bytes(), (tmp_path / "sa.jwk").read_bytes()
    (tmp_path / "sa.jwk").write_text("rubbish")
    pki.ensure_signing_key(tmp_path)
    assert ((tmp_path / "sa.key").read_bytes(), (tmp_path / "sa.jwk").read_bytes()) == (key, public)


def test_a_lost_authority_key_is_reported_with_what_to_do(tmp_path: Path) -> None:
    pki.ensure_server(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(pki.PkiError, match=r"ca\.key is gone: restore it"):
        pki.ensure_server(tmp_path)


def test_an_authority_that_somebody_put_there_is_used_as_it_is(tmp_path: Path) -> None:
    pki.ensure_server(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    for name in ("ca.crt", "ca.key"):
        (tmp_path / "ours" / name).write_bytes((tmp_path / "theirs" / name).read_bytes())
    pki.ensure_server(tmp_path / "ours")
    assert pki.authority(tmp_path / "ours") == pki.authority(tmp_path / "theirs")


def test_a_host_that_is_no_name_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(pki.PkiError, match="neither a host name nor an address"):
        pki.ensure_server(tmp_path, ["a..b"])


def test_a_user_that_fits_in_no_certificate_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(pki.PkiError, match="1 to 64 printable"):
        pki.ensure_client(tmp_path, "x" * 65)


def test_the_admin_kubeconfig_holds_all_that_a_client_needs(pki_directory: Path, tmp_path: Path) -> None:
    admin = pki.ensure_client(pki_directory, "kubernetes-admin", ["system:masters"])
    path = tmp_path / "admin.kubeconfig"
    pki.write_kubeconfig(path, "https://127.0.0.1:6443", pki.authority(pki_directory), client=admin)
    assert path.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == config["contexts"][0]["name"] == config["clusters"][0]["name"]
    assert config["contexts"][0]["context"]["user"] == config["users"][0]["name"]
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(config["users"][0]["user"]["client-certificate-data"]) == admin.certificate


def test_a_kubeconfig_is_replaced_whole_even_where_a_link_waits(pki_directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep me")
    (tmp_path / "kc").symlink_to(target)
    pki.write_kubeconfig(tmp_path / "kc", "https://x", b"ca", token="t: #'\"\\ü")
    assert target.read_text() == "keep me"
    assert yaml.safe_load((tmp_path / "kc").read_text())["users"][0]["user"]["token"] == "t: #'\"\\ü"
