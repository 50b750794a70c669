"""A bare repository on this host, fetched and read through libgit2: no work tree, no hooks, no submodules, no configuration of users.

What is here blocks: call it on a thread. One object may be used by several threads. Several sources of one address share one.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pygit2
from pygit2.enums import ConfigLevel, FileMode, ObjectType

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
"""So long a server may be silent."""
SUBJECT_LENGTH = 120
_SUBTREES_KEPT = 20_000
_FETCHED = "refs/homeostat/"

_ssh_home = threading.Lock()  # libgit2 has one home directory for all, and looks there for known hosts


class GitFailure(Exception):
    """A repository could not be read. Says what happened and what to do; nothing is known of what it holds now."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in; never shown."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)
    """A private SSH key."""
    passphrase: str = field(default="", repr=False)
    known_hosts: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        text = "\0".join((self.username, self.password, self.identity, self.passphrase, self.known_hosts))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


NOBODY = Credentials()


class Allowance(NamedTuple):
    """What one fetch may take."""

    seconds: float = 60.0
    size: int = 256 * 1024 * 1024


class Entry(NamedTuple):
    """One name in a tree."""

    name: str
    id: str
    mode: int

    @property
    def is_tree(self) -> bool:
        return self.mode == FileMode.TREE

    @property
    def is_file(self) -> bool:
        return self.mode in (FileMode.BLOB, FileMode.BLOB_EXECUTABLE)


class CommitFacts(NamedTuple):
    """A commit as people are told of it."""

    id: str
    tree: str
    author: str
    at: float
    subject: str
    parents: tuple[str, ...]


def isolate() -> None:
    """Has libgit2 read nobody's configuration, and not wait for ever. Once a process."""
    for level in (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL, ConfigLevel.PROGRAMDATA):
        pygit2.settings.search_path[level] = ""
    pygit2.settings.owner_validation = False  # a repository is only read, and nothing of it is run
    pygit2.settings.server_connect_timeout = CONNECT_SECONDS * 1000
    pygit2.settings.server_timeout = ANSWER_SECONDS * 1000


isolate()


class Repository:
    """The copy of one remote repository, below `directory`. Made where it is not there; what is broken is said."""

    def __init__(self, directory: Path, url: str) -> None:
        self.url = url
        self.directory = directory / hashlib.sha256(url.encode()).hexdigest()[:32]
        try:
            if not (self.directory / "HEAD").exists():
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                pygit2.init_repository(str(self.directory), bare=True)
            self._git = pygit2.Repository(str(self.directory))
            self._git.config["http.followRedirects"] = "false"  # libgit2 still follows them within one host
        except (pygit2.GitError, OSError) as error:
            raise GitFailure(f"{self.directory} cannot hold a copy of {url}: {error}") from None
        self._lock = threading.Lock()
        self._subtrees: dict[str, tuple[Entry, ...]] = {}

    @property
    def is_local(self) -> bool:
        return self.url.startswith(("/", "file://"))

    # From elsewhere

    def heads(self, credentials: Credentials, allowance: Allowance) -> dict[str, str]:
        """What the remote repository has under which name; `HEAD` too, and of annotated tags what they mean as `NAME^{}`."""
        with self._remote(credentials, allowance) as (remote, callbacks):
            return {str(head.name): str(head.oid) for head in remote.list_heads(callbacks=callbacks)}

    def fetch(self, what: str, credentials: Credentials, allowance: Allowance, depth: int = 0) -> None:
        """Brings a reference, or a commit by its id, with its history. Nothing that is here is lost by it."""
        target = _FETCHED + hashlib.sha256(what.encode()).hexdigest()[:16]
        with self._remote(credentials, allowance) as (remote, callbacks):
            remote.fetch([f"+{what}:{target}"], callbacks=callbacks, depth=0 if self.is_local else depth)

    def _remote(self, credentials: Credentials, allowance: Allowance) -> _Remote:
        return _Remote(self.directory, self.url, credentials, allowance)

    # What is here

    def has(self, commit: str) -> bool:
        """Whether a commit is here, with its tree."""
        try:
            return self.commit(commit) is not None
        except GitFailure:
            return False

    def peel(self, id: str) -> str:
        """The commit that a tag, or a commit, means."""
        with self._lock:
            return str(self._get(id).peel(pygit2.Commit).id)

    def commit(self, id: str) -> CommitFacts:
        """The facts of a commit. GitFailure where it is not here."""
        with self._lock:
            found = self._get(id)
            if not isinstance(found, pygit2.Commit):
                raise GitFailure(f"{id} of {self.url} is no commit")
            subject = found.message.strip().partition("\n")[0]
            return CommitFacts(
                str(found.id),
                str(found.tree_id),
                f"{found.author.name} <{found.author.email}>",
                float(found.commit_time),
                subject[:SUBJECT_LENGTH],
                tuple(map(str, found.parent_ids)),
            )

    def signed(self, id: str) -> tuple[bytes, bytes]:
        """The signature of a commit, or of an annotated tag, and what it is of. Empty where there is none."""
        with self._lock:
            found = self._get(id)
            if isinstance(found, pygit2.Commit):
                signature, payload = found.gpg_signature
                return signature or b"", payload or b""
            raw = bytes(found.read_raw())
        for mark in (b"-----BEGIN PGP SIGNATURE-----", b"-----BEGIN SSH SIGNATURE-----"):
            if (at := raw.find(b"\n" + mark)) >= 0:
                return raw[at + 1 :], raw[: at + 1]
        return b"", raw

    def entries(self, tree: str) -> tuple[Entry, ...]:
        """The names in a tree."""
        found = self._subtrees.get(tree)
        if found is None:
            with self._lock:
                git = self._get(tree)
                if not isinstance(git, pygit2.Tree):
                    raise GitFailure(f"{tree} of {self.url} is no directory")
                found = tuple(Entry(str(one.name), str(one.id), int(one.filemode)) for one in git)
            if len(self._subtrees) >= _SUBTREES_KEPT:
                self._subtrees.clear()
            self._subtrees[tree] = found
        return found

    def size(self, blob: str) -> int:
        """How many bytes a file has."""
        with self._lock:
            try:
                kind, size = self._git.odb.read_header(pygit2.Oid(hex=blob))
            except (KeyError, ValueError, pygit2.GitError):
                raise GitFailure(f"{blob} of {self.url} is not here") from None
            if kind != ObjectType.BLOB:
                raise GitFailure(f"{blob} of {self.url} is no file")
            return int(size)

    def read(self, blob: str) -> bytes:
        """The bytes of a file."""
        with self._lock:
            found = self._get(blob)
            if not isinstance(found, pygit2.Blob):
                raise GitFailure(f"{blob} of {self.url} is no file")
            return bytes(found.data)

    def _get(self, id: str) -> Any:
        try:
            found = self._git.get(id)
        except (ValueError, pygit2.GitError) as error:
            raise GitFailure(f"{id} of {self.url} cannot be read: {error}") from None
        if found is None:
            raise GitFailure(f"{id} of {self.url} is not here")
        return found


class _Remote:
    """The way to a remote repository while a `with` lasts; what fails in it is a `GitFailure`."""

    def __init__(self, directory: Path, url: str, credentials: Credentials, allowance: Allowance) -> None:
        self._url = url
        self._callbacks = _Callbacks(url, credentials, allowance)
        self._home = ""
        if url.partition("://")[0] == "ssh" or ("@" in url.partition("/")[0] and not url.startswith("http")):
            self._home = _known_hosts(directory, credentials.known_hosts)
        self._git = pygit2.Repository(str(directory))

    def __enter__(self) -> tuple[Any, Any]:
        if self._home:
            _ssh_home.acquire()
            pygit2.settings.homedir = self._home
        return self._git.remotes.create_anonymous(self._url), self._callbacks

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._home:
            _ssh_home.release()
        if error is None or isinstance(error, GitFailure):
            return
        if isinstance(error, (pygit2.GitError, KeyError, ValueError, OSError)):
            raise GitFailure(f"{self._url} cannot be read: {_words(error)}") from None


def _words(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if "unsupported URL protocol" in text:
        return "there is no repository"
    if "cannot redirect from" in text:
        return f"{text}, for credentials and permissions are for one host: put the address that is meant into `url`"
    if "too many redirects or authentication replays" in text or "401" in text or "callback returned" in text:
        return f"{text}; check the Secret that `secret` names"
    return text


def _origin(url: str) -> tuple[str, str]:
    """Scheme, host and port: credentials are for these alone. Of `user@host:path`, which redirects nowhere, nothing."""
    parts = urlsplit(url)
    return (parts.scheme, parts.netloc.rpartition("@")[2].lower()) if parts.scheme.startswith("http") else ("", "")


def _known_hosts(directory: Path, lines: str) -> str:
    """A home directory in which nothing is but these known hosts."""
    home = directory / "home" / hashlib.sha256(lines.encode()).hexdigest()[:16]
    place = home / ".ssh" / "known_hosts"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.write_text(lines if lines.endswith("\n") or not lines else lines + "\n")
    return str(home)


class _Callbacks(pygit2.RemoteCallbacks):
    """Logs in once, and stops what takes too long or is too large."""

    def __init__(self, url: str, credentials: Credentials, allowance: Allowance) -> None:
        super().__init__()
        self._origin = _origin(url)
        self._mine = credentials
        self._allowance = allowance
        self._until = time.monotonic() + allowance.seconds
        self._asked = False

    def credentials(self, url: str, username_from_url: str | None, allowed_types: Any) -> Any:
        if _origin(url) != self._origin:
            raise GitFailure(f"it redirects to {url}, which gets no credentials: put the address that is meant into `url`")
        if self._asked:
            raise GitFailure(f"{url} refuses the credentials: check the Secret that `secret` names")
        self._asked = True
        mine = self._mine
        if mine.identity:
            user = username_from_url or mine.username or "git"
            return pygit2.KeypairFromMemory(user, None, mine.identity, mine.passphrase)
        if mine.password:
            return pygit2.UserPass(mine.username or username_from_url or "git", mine.password)
        raise GitFailure(f"{url} wants credentials: name a Secret in `secret`")

    def certificate_check(self, certificate: None, valid: bool, host: bytes) -> bool:
        if not valid:
            name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
            raise GitFailure(
                f"{name} cannot be trusted: its certificate is not valid, or `known_hosts` does not have its key"
            )
        return True

    def transfer_progress(self, stats: Any) -> None:
        if stats.received_bytes > self._allowance.size:
            raise GitFailure(
                f"more than {self._allowance.size // 2**20} MiB came: raise limits.mebibytes, or set depth"
            )
        self._in_time()

    def sideband_progress(self, string: str) -> None:
        self._in_time()

    def _in_time(self) -> None:
        if time.monotonic() > self._until:
            raise GitFailure(f"it took more than {self._allowance.seconds:g} s: raise limits.time, or set depth")


def credentials_of(values: Mapping[str, bytes]) -> Credentials:
    """From the data of a Secret, in the words of `GitSource` and of Kubernetes' own types for basic and SSH authentication."""
    text = {key: value.decode(errors="replace") for key, value in values.items()}
    return Credentials(
        text.get("username", "").strip(),
        (text.get("password") or text.get("token") or "").strip(),
        text.get("identity") or text.get("ssh-privatekey") or "",
        text.get("passphrase", ""),
        text.get("known_hosts", ""),
    )
