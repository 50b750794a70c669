"""A delayed worker applied an old plan over a newer one; then the clean-up deleted the plan that was active."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.scenarios.services import Services

from homeostat.client import Informer, Key
from homeostat.loop.composed import Composed
from homeostat.loop.controller import Controller, Object
from homeostat.loop.status import change_of
from homeostat.sim.network import FINE, Weather

INCIDENT = "AWS DynamoDB DNS, 2025"
MUST_HOLD = "a plan is refused at the write if what it was made from moved; what is active is never cleaned up"
DEAF = Weather(held=1.0, longest=100_000.0)
"""The worker does not hear of what is written."""
GRACE = 300.0


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.house.weather = DEAF
    await fleet.declare("black", fleet.names[:1], change_set="old")
    await fleet.declare("blue", fleet.names[:1], change_set="new")
    fleet.drift(fleet.names[:1])  # and it has a reason to act on what it knows
    told = await fleet.told(4 * PASS)
    await asyncio.sleep(4 * PASS)
    wrong = {call.name for call in fleet.world.calls[fleet.before :] if call.fields["colour"] != "blue"}
    fleet.house.weather = FINE
    fleet.house.network.release()
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size - 1, "blue": 1})
    back = "—" if fleet.naive else "by itself" if came else "not"
    return Figures(len(wrong), fleet.size, told, back)


async def cleaned_up(fleet: Fleet) -> Figures:
    """A plan is replaced, and to be cleaned up after a while. It is made active again, and the cleaner does not hear of it."""
    plans = Services(fleet, regions=1)
    await plans.stand(policy={"deletion": {"grace": f"{GRACE:.0f}s"}})
    await plans.set("region-0", services=plans.regions["region-0"][1:])
    await asyncio.sleep(GRACE / 2)
    plans.house.weather = DEAF
    await plans.set("region-0")
    await asyncio.sleep(GRACE)
    damage = await plans.damage()
    plans.house.weather = FINE
    plans.house.network.release()
    came = await plans.until(plans.calm)
    return Figures(damage, fleet.size, None, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """a newer plan is applied while the older is still on its way"""
    await fleet.stand()
    await fleet.declare("black", fleet.names[:1], change_set="old")
    await fleet.declare("blue", fleet.names[:1], change_set="new")
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size - 1, "blue": 1})


async def obedient(fleet: Fleet) -> Figures:
    """A naive loop acts on the copy that it has, whatever anybody wrote since."""
    async def remember(self: Controller, name: str, namespace: str) -> object:
        return self.get(Key(namespace, name))

    async def write_anyway(self: Controller, obj: Object, status: Object, *, unmoved: bool = False) -> Object:
        if patch := change_of(obj.get("status") or {}, status):
            obj = {**obj, "status": (await self._patch(obj, {"status": patch}, "status")).get("status")}
        return obj

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Controller, "fetch", remember)
        patch.setattr(Controller, "write_status", write_anyway)
        patch.setattr(Informer, "wrote", lambda *_: None)  # nor learns from its own writes, as our client does
        return await incident(fleet)


async def careless(fleet: Fleet) -> Figures:
    """A cleaner that does not ask again what is active."""

    async def not_asked(self: Composed, key: object) -> object:
        return self._objects[key]  # type: ignore[index]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Composed, "check", not_asked)
        return await cleaned_up(fleet)


@pytest.mark.parametrize(("size", "seed"), [(5, 0), (20, 1)])
def test_nothing_is_done_by_a_plan_that_is_no_longer_declared(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.came_back == "by itself"


def test_what_is_active_again_is_not_cleaned_up() -> None:
    figures = live_through(cleaned_up)
    assert (figures.damage, figures.came_back) == (0, "by itself")


def test_a_cleaner_that_does_not_ask_again_deletes_it() -> None:
    assert live_through(careless).damage == 1


def test_the_newer_plan_goes_through_at_once() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_applies_what_was_replaced_long_ago() -> None:
    assert live_through(obedient, naive=True).damage == 1
