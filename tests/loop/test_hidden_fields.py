"""Fields of a declaration that no observation shows, such as a password: a change of one is applied, and believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.diff import Diff, path_text
from homeostat.loop.engine import Engine
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider
from homeostat.model.kinds import Sensitive, Spec
from homeostat.model.protocol import CHANGE_SET


class AccountSpec(Spec):
    owner: str
    password: Annotated[str, Sensitive()] = ""
    timeout: int = 10


class AccountState(Spec):
    owner: str


class Account(Provider[AccountSpec, AccountState], group="accounts.test.dev", means=("timeout",)):
    """An account whose password can be set and not be read."""

    def __init__(self) -> None:
        self.owner = self.password = ""
        self.applied: list[str] = []
        self.sick = self.refuses = self.lies = False

    async def observe(self, spec: AccountSpec) -> AccountState | Absent:
        return AccountState(owner=self.owner) if self.owner else ABSENT

    async def apply(self, spec: AccountSpec, diff: Diff) -> None:
        if self.refuses:
            raise ConnectionError("not now")
        self.applied.append(" ".join(path_text(change.path) for change in diff.changes))
        self.owner, self.password = spec.owner, spec.password
        if self.lies:
            raise ConnectionError("the answer got lost")

    async def delete(self, spec: AccountSpec) -> None:
        self.owner = self.password = ""

    async def unhealthy(self, spec: AccountSpec, state: AccountState) -> str:
        return "it is locked" if self.sick else ""


class Bench:
    """A loop that keeps one account."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.accounts = client.kind("accounts.test.dev/v1", "Account", namespace="default")
        self.provider = Account()
        self.engine: Engine
        self._edits = 0

    async def start(self) -> None:
        self.engine = Engine(self._client, [self.provider], PolicyGate(mode=Mode.ENFORCE), settle=0.01, workers=2)
        await self.engine.start()

    async def declare(self, **spec: Any) -> None:
        self._edits += 1  # each is a change set of its own
        metadata = {"name": "ada", "annotations": {CHANGE_SET: f"edit {self._edits}"}}
        await self.accounts.apply({"metadata": metadata, "spec": spec}, field_manager="test", force=True)

    async def said(self, ready: str = "True", why: str = "") -> dict[str, Any]:
        """The account, once its present declaration is said to be ready, or not to be and why."""
        async with asyncio.timeout(10):
            while True:
                account = await self.accounts.get("ada")
                for one in (account.get("status") or {}).get("conditions", ()):
                    present = one["observedGeneration"] == account["metadata"]["generation"]
                    if present and one["type"] == "Ready" and one["status"] == ready and why in one["message"]:
                        return account
                await asyncio.sleep(0.005)

    async def passed(self) -> None:
        self.engine.passes.begin()
        while self.engine.passes.under_way:
            await asyncio.sleep(0.005)


@pytest.fixture
async def bench(client: Client) -> AsyncIterator[Bench]:
    bench = Bench(client)
    await bench.start()
    yield bench
    await bench.engine.stop()


async def test_a_change_of_what_cannot_be_seen_is_applied_once(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    await bench.declare(owner="ada", password="second")
    await bench.said()
    await bench.passed()
    assert bench.provider.password == "second"
    assert bench.provider.applied == ["owner password", "password"]


async def test_it_is_told_without_its_value(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    bench.provider.refuses = True
    await bench.declare(owner="ada", password="second")
    status = (await bench.said("False"))["status"]
    [told] = status["drift"]["changes"]
    assert told.startswith("~ password: (sensitive) → (sensitive)  (by test at ")
    assert status["drift"]["cause"] == "intent"
    assert "second" not in str(status)


async def test_what_is_declared_no_more_is_taken_back(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    await bench.declare(owner="ada")
    await bench.said()
    assert bench.provider.password == ""


async def test_what_was_refused_is_tried_again(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    bench.provider.refuses = True
    await bench.declare(owner="ada", password="second")
    await bench.said("False")
    bench.provider.refuses = False
    await bench.said()
    assert bench.provider.password == "second"


async def test_what_was_done_and_not_told_is_undone_with_its_declaration(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    bench.provider.lies = True
    await bench.declare(owner="ada", password="second")
    await bench.said("False", "the answer got lost")
    bench.provider.lies = False
    await bench.declare(owner="ada", password="first")
    await bench.said()
    assert bench.provider.password == "first"


async def test_health_is_asked_for_after_it(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    bench.provider.sick = True
    await bench.declare(owner="ada", password="second")
    await bench.said("False", "it is locked")
    bench.provider.sick = False
    await bench.said()
    assert bench.provider.applied == ["owner password", "password"]


async def test_how_something_is_done_is_no_difference(bench: Bench) -> None:
    await bench.declare(owner="ada", timeout=10)
    await bench.said()
    await bench.declare(owner="ada", timeout=20)
    await bench.said()
    assert bench.provider.applied == ["owner password"]


async def test_another_loop_knows_what_was_applied(bench: Bench) -> None:
    await bench.declare(owner="ada", password="first")
    await bench.said()
    await bench.engine.stop()
    await bench.declare(owner="ada", password="second")
    assert bench.provider.password == "first"
    await bench.start()
    await bench.said()
    assert bench.provider.password == "second"


def test_means_are_fields_that_are_not_seen() -> None:
    with pytest.raises(TypeError, match="`means` names owner; it names fields of AccountSpec that AccountState has not"):

        class Wrong(Provider[AccountSpec, AccountState], group="wrong.test.dev", means=("owner",)):
            pass
