"""By a command: it gets the question on its standard input, and prints the answer. See `ways` for both.

It runs as commands of `Exec` do: no shell, a session of its own, nothing of our environment, and only where `--allow exec:PATH` allows its
program. The keys of the pool's Secret come as `values`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import orjson

from homeostat.gpu.pools.ways import Had, Pool, PoolFailed, listed, obtained, question
from homeostat.loop.provider import Refused
from homeostat.providers.exec import PATH, CommandFailed, run

Secrets = Callable[[Pool], Awaitable[Mapping[str, bytes]]]
"""What the Secret of a pool holds; nothing where it has none."""


class ByCommand:
    """`programs` may be run, or those below; None: none may."""

    def __init__(self, programs: Iterable[str] | None, secrets: Secrets) -> None:
        self._allowed = None if programs is None else [os.path.realpath(path) for path in programs]
        self._secrets = secrets

    async def has(self, pool: Pool) -> list[Had]:
        return listed(await self._run("list", pool))

    async def get(self, pool: Pool, key: str) -> str:
        return obtained(await self._run("get", pool, key=key), key)

    async def give_back(self, pool: Pool, had: Had) -> None:
        await self._run("giveBack", pool, key=had.key, node=had.node)

    async def _run(self, action: str, pool: Pool, **more: str) -> bytes:
        command, how = list(pool.spec.provision.exec), pool.spec.provision
        program = await asyncio.to_thread(self._program, command[0])
        held = await self._secrets(pool)
        values = {name: value.decode(errors="replace") for name, value in held.items()}
        environment = {"PATH": PATH, "LANG": "C.UTF-8", "HOMEOSTAT_ACTION": action, "HOMEOSTAT_KEY": more.get("key", "")}

        def blot(text: str) -> str:
            for value in filter(None, (one.strip() for one in values.values())):
                text = text.replace(value, "(secret)")
            return text

        with _input(orjson.dumps({**question(action, pool, **more), "values": values})) as stdin:
            try:
                said = await run(program, command, stdin, environment, "/", how.timeout.total_seconds(), blot)
            except CommandFailed as error:
                raise PoolFailed(f"{action}: {error}") from None
        if said.status != 0:
            raise PoolFailed(said.trouble(action))
        return said.output

    def _program(self, name: str) -> str:
        if not name.startswith("/"):
            raise Refused(f"spec.provision.exec: a program is given by its absolute path, not as {name!r}")
        program = os.path.realpath(name)
        allowed = self._allowed or ()
        if not any(program == one or program.startswith(one.rstrip("/") + "/") for one in allowed):
            may = ", ".join(allowed) or "none"
            raise Refused(
                f"spec.provision.exec: {name} may not be run on this host (allowed: {may}); "
                "whoever runs the control plane can allow it (--allow exec:PATH)"
            )
        return program


@contextmanager
def _input(data: bytes) -> Iterator[int]:
    """All of it at once, so that nobody waits for anybody."""
    descriptor = os.memfd_create("homeostat-pool", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
