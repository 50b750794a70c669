"""Reference stories, without any chance: told once in peace, and then again with a death at every single step.

`deaths(story)` names each point at which the engine or the server may die; `tell(story, death)` tells it with that one death, and
holds it to the same as every storm: nothing wrong ever, all as declared in the end, and then not one more write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from homeostat.loop.fleet import Op
from homeostat.model.protocol import CHANGE_SET
from homeostat.sim.house import KIND, House
from homeostat.sim.network import FINE
from homeostat.sim.people import insist
from homeostat.sim.seeds import Report, run
from homeostat.sim.storm import Storm
from homeostat.sim.world import NONE

SEED = 7
"""Of the order of tasks. There is no other chance in a story."""
_BACK = {"onFailure": "Return", "verifyWithin": "5s"}
FREE = {"massDrift": {"limit": "100%"}, "deletion": {"confirmAbove": "100%"}, "flap": {"reversals": 50}}


class Death(NamedTuple):
    """Who dies, and after how many steps."""

    who: str
    steps: int

    def __str__(self) -> str:
        return f"{self.who}:{self.steps}"


class Story(msgspec.Struct, frozen=True):
    """`play` does what people do; `wrong` says at the end what should not have come of it."""

    name: str
    play: Callable[[House], Awaitable[None]]
    policy: dict[str, Any]
    wrong: Callable[[House], list[str]] = lambda house: []
    composes: bool = False


def tell(story: Story, death: Death | None = None) -> Report:
    """Tells a story, with one death in it."""
    storm = Storm(
        seconds=0.0,
        things=0,
        policy={"fleet": {"kinds": [KIND]}, "mode": "Enforce", "cap": 1, **story.policy},
        weather=FINE,
        trouble=NONE,
        crashes=(death.steps,) if death is not None and death.who == "engine" else (),
        outages=(death.steps,) if death is not None and death.who == "server" else (),
        pause=1.0,
        boxes=1 if story.composes else 0,
    )
    return run(SEED, storm, story)


def deaths(story: Story, every: int = 1) -> Iterator[Death]:
    """All points at which somebody may die in a story, or each `every`th of them."""
    told = tell(story)
    assert told.fine, told
    for who, steps in (("engine", told.engine_steps), ("server", told.server_steps)):
        for step in range(0, steps, every):
            yield Death(who, step)


# The stories


async def _one_life(house: House) -> None:
    """Things are made, changed, drift, vanish, and go."""
    await house.declare("door", {"colour": "red"})
    await house.declare("roof", {"colour": "red"})
    await asyncio.sleep(2.0)
    await house.declare("door", {"colour": "blue", "size": 2})
    if (roof := house.world.one("roof")) is not None:
        roof.fields = {**roof.fields, "colour": "moss"}
    await asyncio.sleep(3.0)
    await house.undeclare("door")
    house.world.things.pop("roof", None)
    await asyncio.sleep(3.0)
    await house.declare("door", {"colour": "green"})
    await asyncio.sleep(3.0)


async def _in_waves(house: House) -> None:
    """One change set for many, and then all of them go."""
    names = [f"lamp-{i}" for i in range(6)]
    for name in names:
        await house.declare(name, {"colour": "red"})
    await asyncio.sleep(2.0)
    for name in names:
        await house.declare(name, {"colour": "blue"}, annotations={CHANGE_SET: "push"})
    await asyncio.sleep(8.0)
    for name in names:
        await house.undeclare(name)
    await asyncio.sleep(5.0)


async def _boxes(house: House) -> None:
    """A composer makes children in stages, changes, prunes, and goes."""
    await house.pack("box", {"a": "red", "b": "red", "c": "red"})
    await asyncio.sleep(4.0)
    await house.pack("box", {"a": "blue", "c": "red", "d": "green"})
    await asyncio.sleep(4.0)
    await house.pack("box", {"d": "green"})
    await house.pack("chest", {"a": "gold"})
    await asyncio.sleep(4.0)
    await house.unpack("box")
    await asyncio.sleep(2.0)


async def _bad_push(house: House) -> None:
    """A change set makes whatever it touches sick; the canary stops it, and a person corrects it."""
    names = [f"lamp-{i}" for i in range(4)]
    house.world.sick = lambda thing: "it does not shine" if thing.fields["colour"] == "typo" else ""
    for name in names:
        await house.declare(name, {"colour": "red"})
    await asyncio.sleep(3.0)
    for name in names:
        await house.declare(name, {"colour": "typo"}, annotations={CHANGE_SET: "push"})
    await asyncio.sleep(10.0)
    for name in names:
        await house.declare(name, {"colour": "green"}, annotations={CHANGE_SET: "correction"})
    await asyncio.sleep(10.0)


def _few_were_touched(house: House) -> list[str]:
    """One by the first wave; one more where a death made the loop forget that the first wave is under way."""
    hit = {c.name for c in house.world.calls if c.op is Op.UPDATE and c.fields.get("colour") == "typo"}
    return [f"the bad push reached {sorted(hit)}"] if len(hit) > 1 + house.deaths else []


async def _taken_back(house: House) -> None:
    """The same, and nobody corrects it: the policy has it taken back. What it had made goes, and a later change set finds all as before."""
    names = [f"lamp-{i}" for i in range(4)]
    house.world.sick = lambda thing: "it does not shine" if thing.fields["colour"] == "typo" else ""
    for name in names:
        await house.declare(name, {"colour": "red"})
    while not all(house.world.one(name) for name in names):  # what is made, and not changed, has no canary
        await asyncio.sleep(1.0)
    for name in [*names, "new"]:
        await house.declare(name, {"colour": "typo"}, annotations={CHANGE_SET: "push"})
    await asyncio.sleep(40.0)
    found = {thing["metadata"]["name"]: thing["spec"]["colour"] for thing in await insist(house.things.list)}
    if house.server.deaths:  # an action that finds no server has failed, and a return that fails halts: then the new one is still there
        found.pop("new", None)
    house.notes.append(found == dict.fromkeys(names, "red") or f"declared after the return: {found}")
    for name in names:
        await house.declare(name, {"colour": "green"}, annotations={CHANGE_SET: "honest"})
    await asyncio.sleep(10.0)


def _went_back(house: House) -> list[str]:
    return [str(one) for one in house.notes if one is not True] + _few_were_touched(house)


async def _approval(house: House) -> None:
    """Too much at once is halted; a person approves it, once; the next is halted again."""
    names = [f"lamp-{i:02}" for i in range(10)]
    for name in names:
        await house.declare(name, {"colour": "red"})
    await asyncio.sleep(3.0)
    await _push(house, names, "blue")
    for _ in range(10):  # whoever asks while the loop is down asks again
        await asyncio.sleep(3.0)
        if plans := house.plans():
            await house.approve(plans[0])
            break
    await asyncio.sleep(15.0)
    await _push(house, names, "black")
    await asyncio.sleep(5.0)
    await _push(house, names, "blue")
    await asyncio.sleep(3.0)


async def _push(house: House, names: list[str], colour: str) -> None:
    for name in names:
        await house.declare(name, {"colour": colour}, annotations={CHANGE_SET: f"paint it {colour}"})


def _few_went_unapproved(house: House) -> list[str]:
    """Three, 30 %, by a push that is cut short by a death: so much is nobody asked about."""
    hit = {c.name for c in house.world.calls if c.op is Op.UPDATE and c.fields.get("colour") == "black"}
    allowed = 3 if house.deaths or house.server.deaths else 0
    return [f"nobody approved of black, and it reached {sorted(hit)}"] if len(hit) > allowed else []


STORIES = {
    story.name: story
    for story in (
        Story("one-life", _one_life, FREE),
        Story("in-waves", _in_waves, {**FREE, "cap": 2}),
        Story("boxes", _boxes, FREE, composes=True),
        Story("bad-push", _bad_push, {**FREE, "cap": 2}, _few_were_touched),
        Story("taken-back", _taken_back, {**FREE, "cap": 2, "canary": _BACK}, _went_back),
        Story("approval", _approval, {"cap": 4}, _few_went_unapproved),
    )
}
