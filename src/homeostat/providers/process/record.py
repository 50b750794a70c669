"""What is known of a replica, kept in a file of its own: written whole, made durable, put in place by a rename."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path

import msgspec
from msgspec import structs

from homeostat.providers.process.kind import Definition

MARK = "HOMEOSTAT_REPLICA"
LOCK_SECONDS = 0.5
"""How long is waited for one that is ending to let go of the directory."""
_DIGEST_SHOWN = 16


class Mark(msgspec.Struct, frozen=True):
    """The mark that a replica carries in its environment, and with it all that it starts. The nonce begins with the definition's digest."""

    uid: str
    index: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.uid}/{self.index}/{self.nonce}"

    @classmethod
    def read(cls, text: str) -> Mark | None:
        uid, _, rest = text.partition("/")
        index, _, nonce = rest.partition("/")
        return cls(uid, int(index), nonce) if uid and nonce and index.isdecimal() else None


def new_nonce(digest: str) -> str:
    """A nonce for one start."""
    return f"{digest[:_DIGEST_SHOWN]}-{secrets.token_hex(8)}"


def made_with(nonce: str, digest: str) -> bool:
    """Whether a replica was started with the definition of this digest."""
    return nonce.startswith(f"{digest[:_DIGEST_SHOWN]}-")


class Identity(msgspec.Struct, frozen=True):
    """One process, and no other that ever has its pid."""

    pid: int
    start: int
    """Clock ticks from boot to its start."""
    boot: str


class Ended(msgspec.Struct, frozen=True):
    """How a replica ended: its exit status, negative for a signal; None where nobody saw."""

    at: float
    status: int | None = None

    def __str__(self) -> str:
        if self.status is None:
            return "nobody saw how"
        return f"killed by signal {-self.status}" if self.status < 0 else f"exit status {self.status}"


class Replica(msgspec.Struct, frozen=True):
    """One start of a replica, and what became of it. Times are wall seconds."""

    nonce: str
    process: Identity
    began: float
    definition: Definition | None = None
    """None where the record got lost, and only the process was found."""
    through: bool = False
    """Whether the gate was opened: if it was not, and the process is no more, then the command never ran."""
    stopping: bool = False
    """We asked it to end; that it does is no crash."""
    ended: Ended | None = None
    ready: bool = False
    """What the readiness probe said last."""
    crashes: int = 0
    """In a row."""
    retry_at: float = 0.0
    """Not started again before."""
    restarts: int = 0

    def but(self, **changes: object) -> Replica:
        """A copy with other values."""
        return structs.replace(self, **changes)


def load(path: Path) -> Replica | None:
    """The record in a file; None where there is none. Raises where it cannot be read: what runs is unknown then."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=Replica)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the record {path} cannot be read: {error}; remove it if its replica does not run") from None


def save(path: Path, record: msgspec.Struct) -> None:
    """Puts a record in the place of the one before. Only the owner may read it: an environment is in it."""
    beside = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(descriptor)
        os.rename(beside, path)
    except OSError as error:
        raise OSError(f"the record {path} cannot be written: {error.strerror}") from error


def claim(root: Path, who: str) -> int:
    """Makes sure that nobody else works with a directory of records: gives a descriptor that holds it until it is closed.

    One that was killed a moment ago may still be ending; others are not waited for. `who` is the word for both in the RuntimeError.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > give_up:
                os.close(lock)
                raise RuntimeError(f"another {who} works with {root}; give this one a directory of its own") from None
            time.sleep(0.005)
