"""Anything that commands can observe and change: the escape hatch for what has no provider yet.

    apiVersion: exec.homeostat.dev/v1
    kind: Exec
    metadata: {name: motd}
    spec:
      observe: [/opt/motd/observe]
      apply: [/opt/motd/apply]
      delete: [/opt/motd/delete]
      desired: {text: Welcome, lines: 1}

Each command is an argument list; no shell is between. On its standard input it gets one JSON object:

- `action`: `observe`, `apply` or `delete`;
- `ref`: `kind`, `namespace`, `name` and `uid` of the resource;
- `key`: the same for every try of one creation, so that nothing is made twice;
- `desired`: as declared; `lastApplied`: what was made true last, or null;
- `state`: what `observe` said last, or null where there was nothing (for `apply` and `delete`);
- `changes`: for `apply`, what differs, as `{path, old, new}`;
- `values`: the ConfigMaps and Secrets named in the declaration, by name and key.

`observe` answers by its exit status: 0 with the state as a JSON object on standard output, 44 where the thing does not exist.
Everything else (another status, no JSON, too much of it, too late) means that nothing is known, and nothing is done. The fields of
`desired` are compared with those of the state; what the state has besides is nobody's business. `apply` and `delete` succeed with
status 0; what they did is then observed. Both are called again after a crash, so they must be able to do it twice.

Of what a command writes to standard error the end is shown to people. Values that came from Secrets are blotted out of it; other
secrets are the command's to keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import orjson
from msgspec import Meta

from homeostat.client import Client
from homeostat.loop.diff import Diff, path_text
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, Refused, Task, current
from homeostat.model.kinds import Column, ListMap, Spec
from homeostat.providers.references import Source, blotter, read_values

ABSENT_STATUS = 44
"""The exit status of `observe` for a thing that does not exist. No program has it by accident."""
TIMEOUT_MOST = 600.0
"""Seconds that a command may ask for."""
OUTPUT_MOST = 1024 * 1024
"""Bytes of standard output; a command that says more is stopped."""
REASON_MOST = 2048
"""Characters of standard error that are shown."""
GRACE_SECONDS = 2.0
"""Between being asked to end and being killed, for a command that takes too long."""
MARGIN_SECONDS = 30.0
"""Beyond a command's own time, for reading its values and ending it."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_TAIL = 64 * 1024  # of standard error, so that a secret at the edge of what is shown is still whole

Command = Annotated[list[str], Meta(min_length=1, max_length=256)]


class ExecSpec(Spec):
    """A thing that commands observe and change."""

    observe: Command
    """Tells what is there. The program is an absolute path that this host allows."""
    apply: Command
    """Makes it as desired."""
    delete: Annotated[list[str], Meta(max_length=256)] = []
    """Takes it away. Empty: the thing stays when its declaration goes."""
    desired: dict[str, Any] = {}
    """What should be so, in whatever fields the commands understand. For all to read: secrets go by `values`."""
    values: Annotated[list[Source], ListMap("name"), Meta(max_length=32)] = []
    """ConfigMaps and Secrets of the same namespace that the commands get."""
    directory: Annotated[str, Meta(pattern="^/")] = "/"
    """Where the commands run."""
    timeout: timedelta = timedelta(seconds=30)
    """How long one command may take, up to 10 minutes. Then it is ended, with all it started."""


class ExecState(Spec):
    """What `observe` said."""

    desired: dict[str, Any]


class CommandFailed(Exception):
    """A command did not do as agreed; in words for people."""


class Exec(
    Provider[ExecSpec, ExecState],
    group="exec.homeostat.dev",
    host=True,
    columns=(Column("Observe", ".spec.observe[0]", priority=1),),
):
    """A thing that commands observe and change.

    `allowed` are programs, or directories of programs, that may be run; without any, everything is refused. Links are looked
    through first. A program gets nothing of this process's environment but the variables named in `environment`.
    """

    deadline: ClassVar[float] = TIMEOUT_MOST + MARGIN_SECONDS

    def __init__(self, allowed: Iterable[str | os.PathLike[str]] = (), *, environment: Iterable[str] = ()) -> None:
        self._allowed = [os.path.realpath(path) for path in allowed]
        self._environment = tuple(environment)
        self._client: Client | None = None

    async def open(self, client: Client) -> None:
        self._client = client

    async def wanted(self, spec: ExecSpec) -> ExecState:
        return ExecState(desired=spec.desired)

    async def observe(self, spec: ExecSpec) -> ExecState | Absent:
        task = current()
        said = await self._run("observe", spec.observe, spec, task, {})
        if said.status == ABSENT_STATUS:
            return ABSENT
        if said.status != 0:
            raise CommandFailed(said.trouble("observe"))
        return ExecState(desired=_state(said.output))

    async def apply(self, spec: ExecSpec, diff: Diff) -> None:
        changes = [{"path": path_text(c.path), "old": _plain(c.old), "new": _plain(c.new)} for c in diff.changes]
        await self._act("apply", spec.apply, spec, {"changes": changes})

    async def delete(self, spec: ExecSpec) -> None:
        if spec.delete:
            await self._act("delete", spec.delete, spec, {})

    def leaves(self, spec: ExecSpec) -> bool:
        return not spec.delete

    def takes(self, spec: ExecSpec) -> float:
        return min(self.deadline, spec.timeout.total_seconds() + MARGIN_SECONDS)

    def target(self, spec: ExecSpec) -> str:
        """What is changed by the same program fails together."""
        return spec.apply[0] if spec.apply else ""

    async def _act(self, action: str, command: list[str], spec: ExecSpec, more: Mapping[str, Any]) -> None:
        task = current()
        state = task.observed
        observed = None if state is None or isinstance(state, Absent) else state.get("desired")
        said = await self._run(action, command, spec, task, {"state": observed, **more})
        if said.status != 0:
            raise CommandFailed(said.trouble(action))

    async def _run(self, action: str, command: list[str], spec: ExecSpec, task: Task, more: Mapping[str, Any]) -> Said:
        program = await asyncio.to_thread(self._program, command)
        seconds = spec.timeout.total_seconds()
        if not 0 < seconds <= TIMEOUT_MOST:
            raise Refused(f"a command may take between 0 and {TIMEOUT_MOST:g} s, not {seconds:g}")
        values = await read_values(self._client, task.ref.namespace, spec.values)
        ref = task.ref
        given = {
            "action": action,
            "ref": {"kind": self.info.kind, "namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
            "key": task.key,
            "desired": spec.desired,
            "lastApplied": (task.last_applied or {}).get("desired"),
            **more,
            "values": {source: _texts(source, held) for source, held in values.by_source.items()},
        }
        with Input(orjson.dumps(given)) as stdin:
            return await run(
                program, command, stdin, self._variables(action, task), spec.directory, seconds, blotter(values)
            )

    def _program(self, command: list[str]) -> str:
        """The program itself, behind all links. Raises `Refused` where it may not be run."""
        if not command or not command[0].startswith("/"):
            raise Refused(f"a program is given by its absolute path, not as {command[0] if command else ''!r}")
        program = os.path.realpath(command[0])
        if not any(program == one or program.startswith(one.rstrip("/") + "/") for one in self._allowed):
            may = ", ".join(self._allowed) or "none"
            raise Refused(
                f"{command[0]} may not be run on this host (allowed: {may}); "
                "whoever runs the control plane can allow more (--allow exec:PATH)"
            )
        return program

    def _variables(self, action: str, task: Task) -> dict[str, str]:
        passed = {name: os.environ[name] for name in self._environment if name in os.environ}
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            **passed,
            "HOMEOSTAT_ACTION": action,
            "HOMEOSTAT_KEY": task.key,
            "HOMEOSTAT_NAMESPACE": task.ref.namespace,
            "HOMEOSTAT_NAME": task.ref.name,
        }


def _plain(value: Any) -> Any:
    return None if value is ABSENT else value


def _texts(source: str, held: Mapping[str, bytes]) -> dict[str, str]:
    try:
        return {key: value.decode() for key, value in held.items()}
    except UnicodeDecodeError:
        raise Refused(f"values.{source} holds what is no text, and commands get texts") from None


def _state(output: bytes) -> dict[str, Any]:
    try:
        state = orjson.loads(output)
    except orjson.JSONDecodeError:
        state = None
    if not isinstance(state, dict):
        raise CommandFailed(
            "observe ended well, but did not print a JSON object; a thing that is not there is status 44"
        )
    return state


# Running a command


class Said(NamedTuple):
    """How a command ended."""

    status: int
    output: bytes
    errors: str

    def trouble(self, action: str) -> str:
        """What went wrong, for people."""
        how = f"exit status {self.status}" if self.status > 0 else f"killed by signal {-self.status}"
        return f"{action}: {how}" + (f": {self.errors}" if self.errors else "")


async def run(
    program: str,
    command: list[str],
    stdin: int,
    environment: Mapping[str, str],
    directory: str,
    seconds: float,
    blot: Callable[[str], str],
    most: int = OUTPUT_MOST,
) -> Said:
    """Runs a command in a session of its own, to its end. Who still holds its output then is not waited for. It may print `most` bytes.

    Raises `CommandFailed` where it cannot be run, says too much or takes too long; then, and when cancelled, it is ended with all
    that it started.
    """
    loop = asyncio.get_running_loop()
    too_much: asyncio.Future[None] = loop.create_future()
    with _Pipe(most, too_much) as output, _Pipe(_TAIL) as errors:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                executable=program,
                stdin=stdin,
                stdout=output.end,
                stderr=errors.end,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise CommandFailed(f"{command[0]} cannot be run: {why}") from None
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait((ended, too_much), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            late = not ended.done()
            if late:
                await _end(process.pid, ended)
        except asyncio.CancelledError:
            _signal(process.pid, signal.SIGKILL)
            await ended
            raise
        output.drain()
        errors.drain()
    said = blot(errors.text()).strip()[-REASON_MOST:]
    if too_much.done():
        raise CommandFailed(f"{command[0]} printed more than {most} bytes, and was stopped")
    if late:
        raise CommandFailed(
            f"{command[0]} did not end within {seconds:g} s, and was stopped" + (f": {said}" if said else "")
        )
    return Said(ended.result(), output.data(), said)


async def _end(pid: int, ended: asyncio.Future[int]) -> None:
    _signal(pid, signal.SIGTERM)
    await asyncio.wait((ended,), timeout=GRACE_SECONDS)
    _signal(pid, signal.SIGKILL)  # also what outlived its parent
    await ended


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class Input:
    """What a command reads, in memory: it is all there at once, so nobody waits for anybody."""

    def __init__(self, data: bytes) -> None:
        self._fd = os.memfd_create("homeostat-exec", os.MFD_CLOEXEC)
        os.write(self._fd, data)
        os.lseek(self._fd, 0, os.SEEK_SET)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class _Pipe:
    """What a command says. Up to `most` bytes of it are kept: the first with `too_much`, which is told of more; else the last."""

    def __init__(self, most: int, too_much: asyncio.Future[None] | None = None) -> None:
        self._read, self.end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read, False)
        self._most = most
        self._too_much = too_much
        self._kept = bytearray()

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._read, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)
        os.close(self.end)

    def _take(self) -> bool:
        try:
            piece = os.read(self._read, 65536)
        except BlockingIOError:
            return False
        self._kept += piece
        if len(self._kept) > self._most:
            if self._too_much is None:
                del self._kept[: -self._most]
            else:
                del self._kept[self._most :]
                if not self._too_much.done():
                    self._too_much.set_result(None)
        return bool(piece)

    def drain(self) -> None:
        """Takes what is there, and no more than a pipe can hold: others may go on talking."""
        for _ in range(16):
            if not self._take():
                break

    def data(self) -> bytes:
        return bytes(self._kept)

    def text(self) -> str:
        return self._kept.decode(errors="replace")
