"""Runs a page: its files are written, its commands run in order as one shell would, and what it shows is what is printed.

What a page can say:

- ` ```python title="lamps.py" `: a file of that name is written.
- ` ```sh `: commands that succeed; what they print is not shown.
- ` ```console `: lines with `$ ` are commands, those below what is printed. `…` stands for anything, on a line of its own for any lines.
  A question is answered as shown: `Apply this? [y/N]: y`. Where an `Error:` is shown, the command has to fail.
- `<!-- PLAN is what comes after: homeostat approve -->`: from here on PLAN stands for that word of what was printed.
- `<!-- not run: WHY -->`: the next block is left alone.

A server runs on until the page ends, on a free port: this machine may have another on the usual one.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
"""Seconds until the world must be as the page shows it: a whole pass of the loop, and a machine that has other work."""
SERVERS = ("homeostat up", "homeostat controllers", "make up")
LOOKS = ("cat ", "ls", "homeostat get", "homeostat drift", "homeostat events", "homeostat explain", "homeostat runbook", "homeostat history",
         "homeostat gpu", "homeostat inventory", "homeostat top", "kubectl get")  # fmt: skip
"""What only looks: it is asked again until the loop is where the page says, as a reader would."""

_BLOCK = re.compile(r"^(?P<in> *)```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<body>.*?)^(?P=in)```$", re.M | re.S)
_COMMENT = re.compile(r"<!-- (?:(?P<not>not run: .+?)|(?P<name>[A-Z]+) is what comes after: (?P<after>.+?)) -->")


@dataclass(frozen=True)
class Call:
    """A command, and what the page shows below it; None where it shows nothing on purpose."""

    command: str
    shown: str | None
    line: int

    @property
    def fails(self) -> bool:
        return self.shown is not None and bool(re.search(r"^Error: ", self.shown, re.M))


@dataclass(frozen=True)
class Writing:
    """A file of the page."""

    name: str
    text: str


@dataclass(frozen=True)
class Learning:
    """From here on `name` stands for the word that was printed after `after`."""

    name: str
    after: str


Step = Call | Writing | Learning


def steps(page: str) -> list[Step]:
    """What a page does, in its order. ValueError where a block says nothing that can be run."""
    found: list[Step] = []
    ends, skip = 0, False
    for block in _BLOCK.finditer(page):
        for comment in _COMMENT.finditer(page, ends, block.start()):
            skip = bool(comment["not"])
            if comment["name"]:
                found.append(Learning(comment["name"], comment["after"]))
        ends = block.end()
        line = page.count("\n", 0, block.start()) + 2
        body = "".join(text[len(block["in"]) :] for text in block["body"].splitlines(keepends=True))
        title = re.search(r'title="([^"]+)"', block["rest"])
        if skip:
            skip = False
        elif title:
            found.append(Writing(title[1], body))
        elif block["language"] == "sh":
            found.append(Call(body, None, line))
        elif block["language"] == "console":
            found += _calls(body, line)
    return found


def _calls(body: str, line: int) -> list[Call]:
    if not body.startswith("$ "):
        raise ValueError(f"line {line}: a console block begins with `$ ` and a command")
    found = []
    for number, text in enumerate(body.splitlines()):
        if text.startswith("$ "):
            found.append((text[2:], [], line + number))
        else:
            found[-1][1].append(text)
    return [Call(command, "\n".join(shown), at) for command, shown, at in found]


def matches(shown: str, printed: str) -> bool:
    """Whether this was printed: `…` is anything on its line, and any lines where it is alone. Space at line ends does not count."""
    parts = []
    for line in shown.strip().splitlines():
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n")
    return re.fullmatch("".join(parts), f"{printed.strip()}\n" if printed.strip() else "") is not None


class Failed(AssertionError):
    """The page is not true: where, what it shows, and what was printed."""


@dataclass
class Shell:
    """One reader's shell, with a home of its own."""

    home: Path
    servers: list[subprocess.Popen[str]] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    printed: str = ""

    def __post_init__(self) -> None:
        self.folder = self.home / "work"
        self.folder.mkdir(parents=True)
        tools = self.home / "tools"
        tools.mkdir()
        real = Path(sys.executable).parent
        _script(tools / "homeostat", f"""
            if [ "$1" = up ]; then shift; exec {real}/homeostat up --listen 127.0.0.1:0 "$@"; fi
            exec {real}/homeostat "$@" """)  # fmt: skip
        # What is installed stays as it is, and the tests are not run from within themselves.
        _script(tools / "make", f"""
            [ "$*" = test ] && set -- -n test
            exec /usr/bin/env PATH="{os.environ["PATH"]}" make -C {shlex.quote(str(ROOT))} -o .venv/ready RUN={tools}/ "$@" """)  # fmt: skip
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        self.state: dict[str, str] = {
            **kept,
            "HOME": str(self.home),
            "PATH": f"{tools}:{real}:{os.environ['PATH']}",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def run(self, step: Step) -> None:
        """Does what a step says. Raises `Failed` where the page is not true."""
        if isinstance(step, Writing):
            (self.folder / step.name).write_text(step.text)
        elif isinstance(step, Learning):
            found = re.search(re.escape(step.after) + r"\s+(\S+)", self.printed)
            if not found:
                raise Failed(f"nothing that was printed says `{step.after}`:\n{self.printed}")
            self.words[step.name] = found[1]
        else:
            for name, word in self.words.items():
                step = Call(re.sub(rf"\b{name}\b", word, step.command), step.shown, step.line)
            if step.command.strip().startswith(SERVERS):
                first, _, rest = step.command.strip().partition("\n")
                self._serve(Call(first, step.shown, step.line))
                step = Call(rest, None, step.line + 1)
            if step.command:
                self._call(step)

    def _call(self, call: Call) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            code, self.printed = self._once(call)
            good = (code != 0) == call.fails and (call.shown is None or matches(call.shown, self.printed))
            if good:
                return
            if not call.command.startswith(LOOKS) or time.monotonic() > deadline:
                raise Failed(
                    f"line {call.line}: `{call.command.strip()}` exits with {code} and prints\n{self.printed}\nthe page shows\n{call.shown}"
                )
            time.sleep(0.2)

    def _once(self, call: Call) -> tuple[int, str]:
        """Runs it as the next command of this shell: what it exports and where it goes stays."""
        after = self.home / "after"
        script = f"{call.command}\ncode=$?\nenv -0 > {shlex.quote(str(after))}\nexit $code"
        shell = ["bash", "-e" if call.shown is None else "+e", "-o", "pipefail", "-c", script]
        ours, theirs = pty.openpty()
        try:
            answers = re.findall(r"\[y/N\]: (\w+)$", call.shown or "", re.M)
            os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
            done = subprocess.run(
                shell, cwd=self.folder, env=self.state, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
        finally:
            os.close(ours)
            os.close(theirs)
        printed = done.stdout
        for answer in answers:  # what is typed is not printed where output is no terminal
            printed = re.sub(r"\[y/N\]: (?!\w+$)", f"[y/N]: {answer}\n", printed, count=1, flags=re.M)
        if after.exists():
            self.state = dict(pair.split("=", 1) for pair in after.read_text().split("\0") if "=" in pair)
            self.folder = Path(self.state["PWD"])
            after.unlink()
        return done.returncode, printed

    def _serve(self, call: Call) -> None:
        command = call.command
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.state, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.servers.append(process)
        assert process.stdout is not None
        said = ""
        while "Ctrl-C stops it" not in said:
            line = process.stdout.readline()
            if not line:
                raise Failed(f"line {call.line}: `{command}` ended and printed\n{said}")
            said += line
        self.printed = said
        if call.shown is not None and not matches(call.shown, said):
            raise Failed(f"line {call.line}: `{command}` prints\n{said}\nthe page shows\n{call.shown}")
        # The loop makes its kinds known a moment after the server is ready: less than it takes to go to another terminal.
        found = re.search(r"^ *kubeconfig +(\S+)", said, re.M)
        where = f" --kubeconfig {found[1]}" if found else ""
        self._call(Call(f"homeostat get guardpolicies{where}", "NAME …\n…", call.line))

    def close(self) -> None:
        """Ends the servers, and all that they started."""
        for process in self.servers:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.servers:
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def _script(path: Path, text: str) -> None:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
