"""Twenty services out of a Git repository, for incidents that begin with a commit: a real repository, server and clock, all in process.

The same can be lived through with our guards, and with a loop that obeys.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.loop.waiting import said
from tests.scenarios.fleet import AT_ONCE, SIZE, Figures, Obey
from tests.sources.conftest import Bench, Object
from tests.sources.repo import Repo, config_map

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.loop.engine import Engine

SERVICES = [f"service-{i:02}" for i in range(SIZE)]
TEMPLATE = "{% for name in vars.SERVICES.split() %}---\n" + config_map("{{ name }}", "{{ vars.VERSION }}") + "{% endfor %}"
TOLD = ("ObjectsHeld", "Refused", "SourceUnknown")


class Shop(Bench):
    """A repository, a Sync of it, and what becomes of its objects."""

    def __init__(self, client: Client, repo: Repo, directory: Path, naive: bool) -> None:
        super().__init__(client, repo, directory)
        self.naive = naive
        self._before: dict[str, str] = {}
        self._fault = 0.0

    async def open(self) -> None:
        if not self.naive:
            await self.start()
            return
        self.sync = self.make()
        self.engine = Engine(self.client, [], Obey(), settle=0.01, workers=4, composers=[self.sync])
        await self.engine.start()

    async def close(self) -> None:
        await (self.engine.stop() if self.naive else self.stop())

    async def stand(self, version: str = "1") -> None:
        """All services are there, and were looked at."""
        self.repo.commit({"services.yaml.j2": TEMPLATE})
        await self.declare_source()
        await self.services(version)
        await self.says("Applied")
        await self.whole_pass()
        await self.fault()

    async def services(self, version: str) -> None:
        await self.declare(variables={"SERVICES": " ".join(SERVICES), "VERSION": version})

    async def fault(self) -> None:
        """From here on it is counted."""
        self._before, self._fault = await self.values(), asyncio.get_running_loop().time()

    async def damage(self) -> int:
        """How many of the objects that there were are gone, or not what they were."""
        now = await self.values()
        return sum(now.get(name) != value for name, value in self._before.items())

    async def told(self, within: float = 10.0) -> float | None:
        """Waits until a person could read that something is wrong; gives after how long."""
        clock = asyncio.get_running_loop().time
        while clock() - self._fault < within:
            if said(await self.syncs.get("shop")).get("reason") in TOLD or await self.halts():
                return round(clock() - self._fault, 1)
            if self.naive and await self.damage():
                return None
            await asyncio.sleep(0.02)
        return None

    async def halts(self) -> list[Object]:
        """What a person is asked about."""
        policies = [] if self.naive else await self.client.kind("homeostat.dev/v1alpha1", "GuardPolicy").list()
        return [halt for policy in policies for halt in (policy.get("status") or {}).get("halts") or ()]

    async def through(self, done: Callable[[], Awaitable[bool]], *, approve: bool = False) -> str:
        """How it came through, in the words of the table: a person may approve, once."""
        clock, approved = asyncio.get_running_loop().time, False
        began = clock()
        while not await done():
            if clock() - began > 60:
                return "not"
            plans = [halt["plan"] for halt in await self.halts() if halt["reason"].startswith(f"{SIZE} of ")]  # all of it was looked at
            if approve and not approved and plans:
                await self.client.kind("homeostat.dev/v1alpha1", "Approval").create(
                    {"metadata": {"generateName": "yes-"}, "spec": {"plan": plans[0]}}
                )
                approved = True
            await self.whole_pass()
            await asyncio.sleep(0.05)
        if approved:
            return "by one approval"
        return "at once" if clock() - began <= AT_ONCE else f"by itself, in {clock() - began:.0f} s"


Scenario = Callable[[Shop], Awaitable[Figures]]


def live_from_git(scenario: Scenario, *, naive: bool = False) -> Figures:
    """Lives through it, in real time."""

    async def live() -> Figures:
        with tempfile.TemporaryDirectory() as place:
            root = Path(place)
            server = Server(root / "data", Listen("127.0.0.1", 0), durable=False)
            await server.start()
            client = local_client(server.plane, "loop")
            shop = Shop(client, Repo(root / "repo"), root / "copies", naive)
            try:
                await shop.open()
                return await scenario(shop)
            finally:
                await shop.close()
                await client.close()
                await server.stop()

    return asyncio.run(live())
