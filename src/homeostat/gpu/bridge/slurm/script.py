"""The batch script of a replica. Command and environment stand in it quoted; nothing of them is read as shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from homeostat.gpu.bridge.environment import refuse_nul
from homeostat.gpu.bridge.slurm.reading import BEGUN_BEFORE
from homeostat.loop.provider import Refused

NOT_SEEN = 121
"""The exit status where the node does not see the state directory."""

# The begun folder is made before anything is run, so that no start is made twice, however often it is submitted or queued again. Signals
# reach the shell alone, which passes them on; a background command of a shell ignores INT and QUIT unless somebody undoes that.
_SCRIPT = """\
#!/bin/sh
cd -- {folder} || {{ echo {not_seen_words} >&2; exit {not_seen}; }}
mkdir -- {begun} 2>/dev/null || exit {begun_before}
tell() {{ printf '{{"mark": "%s", "status": %d}}\\n' {mark} "$1" >{exit}.new && mv -f -- {exit}.new {exit}; }}
{exports}
set -- {command}
cd -- {working_dir} || {{ tell 126; exit 126; }}
child=
for name in HUP INT QUIT ALRM TERM USR1 USR2 WINCH; do
  trap "kill -$name \\$child 2>/dev/null" "$name"
done
if env --default-signal=INT,QUIT true 2>/dev/null; then set -- env --default-signal=INT,QUIT -- "$@"; fi
"$@" </dev/null &
child=$!
while wait "$child"; status=$?; kill -0 "$child" 2>/dev/null; do :; done
cd -- {folder} && tell "$status"
exit "$status"
"""


def script(folder: Path, stem: str, mark: str, command: Sequence[str], env: Mapping[str, str], working_dir: str) -> str:
    """The script of one start. `folder` is where it leaves how it went, in files named by `stem`. `Refused` where it cannot be written."""
    refuse_nul(*command, *env.values(), working_dir)
    if "=" in command[0]:
        raise Refused(f"{command[0]}: the name of a program that Slurm runs cannot hold an =")
    if not working_dir.startswith("/"):
        raise Refused(f"the working directory {working_dir} must begin with a slash")
    return _SCRIPT.format(
        folder=shlex.quote(str(folder)),
        not_seen=NOT_SEEN,
        not_seen_words=shlex.quote(f"this node does not see {folder}: the bridge's --state must lie on a file system that all nodes share"),
        begun=shlex.quote(f"{stem}.begun"),
        begun_before=BEGUN_BEFORE,
        exit=shlex.quote(f"{stem}.exit"),
        mark=shlex.quote(mark),
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items()),
        command=shlex.join(command),
        working_dir=shlex.quote(working_dir),
    )
