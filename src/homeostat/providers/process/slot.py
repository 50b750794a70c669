"""One place for a replica: its record on disk and, while it runs, the hold on its process.

Its methods wait for the kernel and the disk, so they are for threads; what the event loop may ask at any time are its attributes and
`running`. Each method looks first and acts then, under a lock: to call one twice, or after a caller gave up, does no harm.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from homeostat.providers.process import kernel, launch, logs, record
from homeostat.providers.process.kernel import Marked
from homeostat.providers.process.kind import Definition, Restart, digest_of
from homeostat.providers.process.places import after_end
from homeostat.providers.process.record import Identity, Mark, Replica, made_with, new_nonce

log = logging.getLogger("homeostat.providers.process")

_SWEEPS = 20
"""How often is looked for what a replica left behind, until nothing is found any more."""
_GATE_SECONDS = 2.0
"""A replica of a control plane that was killed is behind the gate for an instant, until it sees that nobody will open."""


class Ending(NamedTuple):
    """A replica that was asked to end: a pidfd of its own for who waits for it, to be closed, and who was in its session."""

    pidfd: int
    members: Sequence[Identity]


class Slot:
    """The place of one index of one resource."""

    def __init__(self, folder: Path, uid: str, index: int) -> None:
        self.folder = folder
        self.uid = uid
        self.index = index
        self.replica: Replica | None = None
        self.pidfd: int | None = None
        self.released: list[int] = []
        """Pidfds that are no longer needed. The event loop closes them, for it may be looking at one just now."""
        self.strays: list[Marked] = []
        """What earlier replicas of this index left behind."""
        self.unwritten = False
        """Whether the record on disk is behind what is known, because it could not be written."""
        self._path = folder / f"{index}.json"
        self._lock = threading.RLock()

    @property
    def running(self) -> bool:
        pidfd = self.pidfd
        return pidfd is not None and not kernel.has_ended(pidfd)

    @property
    def end_unnoted(self) -> bool:
        """Whether its process is no more, and the record does not know it yet."""
        return self.replica is not None and self.replica.ended is None and not self.running

    # Finding it again

    def load(self, found: Sequence[Marked]) -> None:
        """Reads the record and takes up its process again, or one that is found without a record. Raises where it cannot be told."""
        with self._lock:
            mine = [one for one in found if one.mark.index == self.index]
            self.replica = record.load(self._path) or self._unrecorded(mine)
            replica = self.replica
            if replica is not None and replica.ended is None:
                self.pidfd = kernel.hold(replica.process)
                if self.pidfd is not None and not replica.through:
                    self._await_gate(replica, self.pidfd)
            current = self.replica.nonce if self.replica else ""
            self.strays = [
                one for one in mine if one.mark.nonce != current and not launch.is_behind_gate(one.process.pid)
            ]

    def _unrecorded(self, mine: Sequence[Marked]) -> Replica | None:
        """A replica whose record got lost: the newest first of a session that is through the gate."""
        nonces = list(dict.fromkeys(one.mark.nonce for one in mine if one.leads))
        for nonce in reversed(nonces):
            first = next(one for one in mine if one.leads and one.mark.nonce == nonce)
            if not launch.is_behind_gate(first.process.pid):
                replica = Replica(nonce, first.process, time.time(), through=True)
                record.save(self._path, replica)
                return replica
        return None

    def _await_gate(self, replica: Replica, pidfd: int) -> None:
        """Finds out whether the gate was opened before the record could say so: then the process is another program by now."""
        give_up = time.monotonic() + _GATE_SECONDS
        while not kernel.has_ended(pidfd) and launch.is_behind_gate(replica.process.pid):
            if time.monotonic() > give_up:
                raise TimeoutError(f"replica {self.index} (pid {replica.process.pid}) neither begins nor ends")
            time.sleep(0.001)
        if not kernel.has_ended(pidfd):
            self._note(replica.but(through=True))

    # Starting

    def start(self, how: launch.Start, definition: Definition, now: float) -> None:
        """Starts a replica, if none runs here. What an earlier one left behind is killed first."""
        with self._lock:
            if self.running:
                return
            before = self.replica
            if before is not None:
                self._sweep(before)
            self.kill_strays()
            digest = digest_of(definition)
            same = before is not None and made_with(before.nonce, digest)
            replica = Replica(
                nonce=new_nonce(digest),
                process=Identity(0, 0, ""),
                began=now,
                definition=definition,
                crashes=before.crashes if before and same else 0,
                restarts=before.restarts + (before.through and not before.stopping) if before and same else 0,
            )
            self._release()
            out, err = (logs.open_log(path) for path in logs.paths_of(self.folder, self.index))
            try:
                mark = Mark(self.uid, self.index, replica.nonce)
                self.pidfd = launch.launch(how, mark, out, err, lambda process: self._put(replica.but(process=process)))
            finally:
                os.close(out)
                os.close(err)
            assert self.replica is not None
            self._note(self.replica.but(through=True))

    # Ending

    def note_end(self, restart: Restart, now: float) -> None:
        """Writes down that and how its process ended, and reaps it if it is our child."""
        with self._lock:
            if self.replica is None or not self.end_unnoted:
                return
            status = None if self.pidfd is None else kernel.exit_status(self.pidfd, self.replica.process)
            self._note(after_end(self.replica, status, restart, now))
            self._release()

    def ask_to_end(self, sig: signal.Signals, *, vacate: bool) -> Ending | None:
        """Sends a signal to its process; None where none runs. To `vacate` is to end it for good: that it ends is then no crash."""
        with self._lock:
            if self.replica is None or self.pidfd is None or not self.running:
                return None
            if vacate and not self.replica.stopping:
                self._note(self.replica.but(stopping=True))
            ending = Ending(os.dup(self.pidfd), kernel.members(self.replica.process.pid))
            kernel.send(self.pidfd, sig)
            return ending

    def kill(self, members: Sequence[Identity]) -> None:
        """Kills its process and all that it started."""
        with self._lock:
            if self.replica is None:
                return
            if self.pidfd is not None and self.running:
                members = [
                    *members,
                    *kernel.members(self.replica.process.pid),
                ]  # while it runs, its session is sure to be its own
                kernel.send(self.pidfd, signal.SIGKILL)
            for process in set(members) - {self.replica.process}:
                kernel.kill(process)
            self._sweep(self.replica)

    def kill_strays(self) -> None:
        """Kills what earlier replicas left behind."""
        with self._lock:
            for stray in self.strays:
                kernel.kill(stray.process)
            self.strays = []

    def _sweep(self, replica: Replica) -> None:
        mark = Mark(self.uid, self.index, replica.nonce)
        session = frozenset((replica.process.pid,))
        for _ in range(_SWEEPS):
            left = [
                one
                for one in kernel.marked(self.folder, lambda found: found == mark, session)
                if one.process != replica.process
            ]
            if not left:
                return
            for one in left:
                kernel.kill(one.process)

    def clear(self) -> None:
        """Forgets a replica that has ended: its record goes, its logs stay."""
        with self._lock:
            if self.running:
                raise RuntimeError(f"replica {self.index} still runs")
            self._path.unlink(missing_ok=True)
            self.replica, self.unwritten = None, False
            self._release()

    # Its record

    def note_ready(self, nonce: str, ready: bool) -> None:
        """Writes down what the readiness probe says, so that it is known after a restart."""
        with self._lock:
            replica = self.replica
            if replica is not None and replica.nonce == nonce and replica.ended is None and replica.ready != ready:
                self._note(replica.but(ready=ready))

    def write(self) -> None:
        """Brings the record up to what is known, where it could not be written before."""
        with self._lock:
            if self.unwritten and self.replica is not None:
                self._note(self.replica)

    def _put(self, replica: Replica) -> None:
        """Writes it down; where that fails, nothing has changed."""
        record.save(self._path, replica)
        self.replica, self.unwritten = replica, False

    def _note(self, replica: Replica) -> None:
        """Notes what is so whether or not it can be written down. A full disk must not keep what fills it from being ended."""
        try:
            self._put(replica)
        except OSError as error:
            if not self.unwritten:
                log.warning("%s; it is written when it can be", error)
            self.replica, self.unwritten = replica, True

    def _release(self) -> None:
        if self.pidfd is not None:
            self.released.append(self.pidfd)
            self.pidfd = None
