"""Providers and composers of users in storms: good ones come through, and what is wrong with others is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from homeostat import ABSENT, Absent, ApiError, Composer, Diff, Provider, Spec, current
from homeostat.sim import Play, rehearse

SEEDS = 12


class LampSpec(Spec):
    colour: str


class LampState(Spec):
    colour: str


class Lamp(Provider[LampSpec, LampState], group="lamps.example.com"):
    """A lamp in a world of names and colours; one that is there twice burns twice."""

    def __init__(self, world: list[tuple[str, str]]) -> None:
        super().__init__()
        self.world = world

    def _mine(self) -> list[tuple[str, str]]:
        return [lamp for lamp in self.world if lamp[0] == current().ref.name]

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        found = self._mine()
        return LampState(colour=found[0][1]) if found else ABSENT

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self._take_away()
        self.world.append((current().ref.name, spec.colour))

    async def delete(self, spec: LampSpec) -> None:
        self._take_away()

    def _take_away(self) -> None:
        for lamp in self._mine():
            self.world.remove(lamp)


class PaintsTheFirstOnly(Lamp, group="lamps.example.com", kind="Lamp"):
    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        if not self._mine():
            await super().apply(spec, diff)


class AddsEachTime(Lamp, group="lamps.example.com", kind="Lamp"):
    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self.world.insert(0, (current().ref.name, spec.colour))

    async def delete(self, spec: LampSpec) -> None:
        self.world.remove(self._mine()[0])


class LeavesThem(Lamp, group="lamps.example.com", kind="Lamp"):
    async def delete(self, spec: LampSpec) -> None:
        pass


class RemembersInItself(Lamp, group="lamps.example.com", kind="Lamp"):
    """It believes what it did itself rather than what there is."""

    def __init__(self, world: list[tuple[str, str]]) -> None:
        super().__init__(world)
        self.lit: dict[str, str] = {}

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        colour = self.lit.get(current().ref.name)
        return LampState(colour=colour) if colour else ABSENT

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self.world.append((current().ref.name, spec.colour))
        self.lit[current().ref.name] = spec.colour


class Flickers(Lamp, group="lamps.example.com", kind="Lamp"):
    """What it reads is never what it set."""

    seen = 0

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        Flickers.seen += 1
        found = await super().observe(spec)
        return found if isinstance(found, Absent) or Flickers.seen % 7 else LampState(colour="grey")


def lamp(name: str, colour: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "lamps.example.com/v1", "kind": "Lamp", "metadata": metadata, "spec": {"colour": colour}}


def stage(make: type[Lamp]) -> Callable[[int], Play]:
    def play(seed: int) -> Play:
        world: list[tuple[str, str]] = []

        def meddle(dice: random.Random) -> None:
            if world:
                at = dice.randrange(len(world))
                world[at] = (world[at][0], "black")

        def check(declared: Any) -> None:
            assert sorted(world) == sorted((one["metadata"]["name"], one["spec"]["colour"]) for one in declared)

        versions = [lamp(name, colour) for name in ("hall", "stairs", "attic") for colour in ("red", "blue")]
        return Play(lambda: [make(world)], versions, meddle, check)

    return play


def test_a_provider_that_keeps_the_rules_comes_through() -> None:
    rehearse(stage(Lamp), SEEDS)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (PaintsTheFirstOnly, "is not Ready"),
        (AddsEachTime, "the check says"),
        (LeavesThem, "is deleted and not gone"),
        (RemembersInItself, "the check says"),
        (Flickers, "was written, and nothing had changed"),
    ],
)
def test_what_breaks_the_rules_is_found_and_the_seed_is_named(wrong: type[Lamp], said: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)seed \d+ \(to see it again: seeds=\[\d+\]\):.*{said}"):
        rehearse(stage(wrong), SEEDS)


class RoomSpec(Spec):
    lamps: dict[str, str]


class Room(Composer[RoomSpec], group="rooms.example.com"):
    """Lamps, a ConfigMap each."""

    def compose(self, spec: RoomSpec, parent: dict[str, Any]) -> Any:
        for name, colour in spec.lamps.items():
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{parent['metadata']['name']}-{name}"}, "data": {"colour": colour}}


def test_a_composer_comes_through() -> None:
    def room(name: str, **lamps: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": "rooms.example.com/v1", "kind": "Room", "metadata": metadata, "spec": {"lamps": lamps}}

    versions = [room("hall", a="red"), room("hall", a="blue", b="red"), room("attic", a="red"), room("attic", c="blue")]
    rehearse(lambda seed: Play(lambda: [Room()], versions), SEEDS)


def test_the_same_seed_is_the_same_storm() -> None:
    told = []
    for _ in range(2):
        with pytest.raises(AssertionError) as error:
            rehearse(stage(LeavesThem), SEEDS)
        told.append(str(error.value))
    assert told[0] == told[1]


def test_what_cannot_be_played_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="declared is empty"):
        rehearse(lambda seed: Play(lambda: [Lamp([])], []), 1)
    with pytest.raises(ApiError, match='no matches for kind "Lmap"'):
        rehearse(lambda seed: Play(lambda: [Lamp([])], [{**lamp("hall", "red"), "kind": "Lmap"}]), SEEDS)
