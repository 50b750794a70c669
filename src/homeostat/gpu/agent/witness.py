"""Sees how a process ends, and writes it down. A program of its own, needing only Python.

    HOMEOSTAT_COMMAND='["train", "--fast"]' python witness.py FILE ACCOUNT

Linux tells how a process ended to its parent, and since 6.15 to whoever held it then: not to an agent that was away at that moment. So this
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
COMMAND = "HOMEOSTAT_COMMAND"
"""What it runs, in JSON: not among its arguments, where who counts processes by their command would count each twice."""


def seen(file: Path, mark: str) -> int | None:
    """The exit status of the start with this mark, negative for a signal; None where nobody saw it."""
    try:
        found = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found["status"] if found.get("mark") == mark else None


def tell(file: Path, mark: str, status: int) -> None:
    """Writes down how the start with this mark ended, so that it is known after a restart of the machine as well."""
    beside = file.with_name(f"{file.name}.new")
    with beside.open("w") as text:
        json.dump({"mark": mark, "status": status}, text)
        text.flush()
        os.fsync(text.fileno())
    beside.rename(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def run(file: Path, account: dict[str, object], command: list[str]) -> int:
    """Runs a command to its end; gives its exit status, negative for a signal, which is in the file by then where that can be written."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    child = subprocess.Popen(command, preexec_fn=unblock, **account)  # type: ignore[call-overload]
    while child.poll() is None:
        number = signal.sigwait({*PASSED_ON, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            child.send_signal(number)
    try:
        tell(file, os.environ.get(MARK, ""), child.returncode)
    except OSError as error:  # the agent that is there still learns it from us: we end as it did
        print(f"its exit status could not be written down: {error}", file=sys.stderr)
    return int(child.returncode)


def main(arguments: list[str]) -> None:
    """One command, from its beginning to its end."""
    file, account = arguments
    command = json.loads(os.environ.pop(COMMAND))
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
