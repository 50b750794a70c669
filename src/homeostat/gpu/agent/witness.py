"""Sees how a process ends, and writes it down. A program of its own, needing only Python.

    python witness.py FILE ACCOUNT COMMAND...

Linux tells how a process ended to its parent alone, before 6.15. An agent that took a process up again is not its parent; so there this
program stands between: it starts the command, passes signals on to it, and leaves its exit status in FILE, for whichever agent looks then.
It ends as the command did. ACCOUNT is whom the command runs as, in JSON as `subprocess.Popen` takes it: `{}` for nobody else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

MARK = "HOMEOSTAT_REPLICA"  # stands in the records of processes too, but this program has nothing but Python
PASSED_ON = {
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGALRM,
}  # fmt: skip
PROGRAM = Path(__file__)
_TELLS_ALL = (6, 15)


def needed(release: str = os.uname().release) -> bool:
    """Whether this kernel tells how a process ended only to its parent."""
    numbers = release.replace("-", ".").split(".")[:2]
    return tuple(int(one) if one.isdecimal() else 0 for one in numbers) < _TELLS_ALL


def seen(file: Path, mark: str) -> int | None:
    """The exit status of the start with this mark, negative for a signal; None where nobody saw it."""
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found["status"] if found.get("mark") == mark else None


def run(file: Path, account: dict[str, object], command: list[str]) -> int:
    """Runs a command to its end; gives its exit status, negative for a signal, which is in the file by then."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    child = subprocess.Popen(command, preexec_fn=unblock, **account)  # type: ignore[call-overload]
    while child.poll() is None:
        number = signal.sigwait({*PASSED_ON, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            child.send_signal(number)
    beside = file.with_name(f"{file.name}.new")
    with beside.open("w") as text:
        json.dump({"mark": os.environ.get(MARK, ""), "status": child.returncode}, text)
        text.flush()
        os.fsync(text.fileno())
    beside.rename(file)
    return int(child.returncode)


def main(arguments: list[str]) -> None:
    """One command, from its beginning to its end."""
    file, account, *command = arguments
    try:
        status = run(Path(file), json.loads(account), command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    if status < 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main(sys.argv[1:])
