"""Who signed a commit: asked of gpg or ssh-keygen, with the keys that are allowed and no others."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

SECONDS = 20.0
_WHO = "homeostat"
_NAMESPACE = "git"


class NotSigned(Exception):
    """A commit is not signed by anybody who may. It is not applied."""


def verify(signature: bytes, payload: bytes, keys: Mapping[str, bytes]) -> str:
    """The name of the key that signed the payload. NotSigned where none of the allowed ones did.

    `keys` as in a Secret: `NAME.asc` are GPG public keys, `NAME.pub` SSH public keys.
    """
    if not signature:
        raise NotSigned("it is not signed")
    if b"BEGIN SSH SIGNATURE" in signature:
        return _by_ssh(signature, payload, {n: k for n, k in keys.items() if n.endswith(".pub")})
    if b"BEGIN PGP SIGNATURE" in signature:
        return _by_gpg(signature, payload, {n: k for n, k in keys.items() if n.endswith(".asc")})
    raise NotSigned("it is signed in a way that is not known here: GPG and SSH keys are")


def _by_ssh(signature: bytes, payload: bytes, keys: Mapping[str, bytes]) -> str:
    if not keys:
        raise NotSigned("it is signed by an SSH key, and the Secret has none (`NAME.pub`)")
    program = _program("ssh-keygen")
    with tempfile.TemporaryDirectory(prefix="homeostat-verify-") as place:
        (Path(place) / "signature").write_bytes(signature)
        for name, key in sorted(keys.items()):
            lines = [
                line for line in key.decode(errors="replace").splitlines() if line.strip() and not line.startswith("#")
            ]
            (Path(place) / "allowed").write_text(
                "".join(f'{_WHO} namespaces="{_NAMESPACE}" {line}\n' for line in lines)
            )
            asked = ["-Y", "verify", "-f", "allowed", "-I", _WHO, "-n", _NAMESPACE, "-s", "signature"]
            if _run([program, *asked], payload, place).returncode == 0:
                return name
    raise NotSigned(f"it is signed by an SSH key that is none of {', '.join(sorted(keys))}")


def _by_gpg(signature: bytes, payload: bytes, keys: Mapping[str, bytes]) -> str:
    if not keys:
        raise NotSigned("it is signed by a GPG key, and the Secret has none (`NAME.asc`)")
    program = _program("gpg")
    with tempfile.TemporaryDirectory(prefix="hgpg-") as place:
        (Path(place) / "signature").write_bytes(signature)
        ours = [
            program,
            "--homedir",
            place,
            "--batch",
            "--no-tty",
            "--quiet",
            "--no-auto-key-retrieve",
            "--trust-model",
            "always",
        ]
        for name, key in sorted(keys.items()):
            ring = ["--no-default-keyring", "--keyring", str(Path(place) / f"{sum(map(ord, name))}-{len(name)}.kbx")]
            imported = _run([*ours, *ring, "--import"], key, place)
            if imported.returncode != 0:
                raise NotSigned(
                    f"the key {name} cannot be read: {imported.stderr.decode(errors='replace').strip()[-300:]}"
                )
            told = _run([*ours, *ring, "--status-fd", "1", "--verify", "signature", "-"], payload, place)
            words = {
                line.split()[1]
                for line in told.stdout.decode(errors="replace").splitlines()
                if line.startswith("[GNUPG:] ")
            }
            if told.returncode == 0 and {"GOODSIG", "VALIDSIG"} <= words:
                return name
            if words & {"EXPKEYSIG", "REVKEYSIG", "EXPSIG"}:
                raise NotSigned(f"it is signed by {name}, which has expired or was revoked")
    raise NotSigned(f"it is signed by a GPG key that is none of {', '.join(sorted(keys))}, or not for this content")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotSigned(f"it cannot be told who signed it: {name} is not on the PATH of the loop")
    return found


def _run(command: list[str], given: bytes, place: str) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": place, "GNUPGHOME": place, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, input=given, capture_output=True, cwd=place, env=environment, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotSigned(f"{Path(command[0]).name} did not answer within {SECONDS:g} s") from None
