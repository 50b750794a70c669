"""A plan is carried out as it was decided on, or not at all; and by one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homeostat.loop.diff import NOTHING
from homeostat.loop.fleet import Ref
from homeostat.loop.provider import Moved, Task, Working
from homeostat.model.clock import Clock
from homeostat.model.kinds import decode, encode
from homeostat.providers.dryrun.place import Busy, Place
from homeostat.providers.dryrun.plan import PlanState
from homeostat.providers.terraform import TerraformModule, TerraformSpec

pytestmark = pytest.mark.timeout(300)

CODE = 'variable "v" {\n  default = 1\n}\nresource "terraform_data" "a" {\n  input = var.v\n}\n'
MODULE = Ref(TerraformModule.info.name, "default", "web", "uid")


class Late(Clock):
    """A clock that can be put forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Hand:
    """Does by hand what the engine does: looks, and acts on what it saw."""

    def __init__(self, root: Path) -> None:
        self.clock = Late()
        self.code = root / "code"
        self.code.mkdir()
        (self.code / "main.tf").write_text(CODE)
        self.root = root / "modules"
        self.provider = TerraformModule(self.root, clock=self.clock)

    def spec(self, **more: Any) -> TerraformSpec:
        return decode(TerraformSpec, {"source": {"path": str(self.code)}, "interval": "1h", **more})

    async def look(self, **more: Any) -> PlanState:
        with Working(Task(MODULE, {}, {})):
            found = await self.provider.observe(self.spec(**more))
        assert isinstance(found, PlanState)
        return found

    async def act(self, seen: PlanState, **more: Any) -> None:
        with Working(Task(MODULE, {}, {}, observed=encode(seen))):
            await self.provider.apply(self.spec(**more), NOTHING)

    @property
    def state(self) -> Path:
        return self.root / "default/web/work/terraform.tfstate"


@pytest.fixture
def hand(tmp_path: Path, terraform: None) -> Hand:
    return Hand(tmp_path)


def other_code(hand: Hand) -> dict[str, Any]:
    (hand.code / "more.tf").write_text('resource "terraform_data" "b" {}\n')
    return {}


def other_variables(hand: Hand) -> dict[str, Any]:
    return {"variables": {"v": 2}}


@pytest.mark.parametrize("moves", [other_code, other_variables])
async def test_it_is_refused_if_the_code_or_the_variables_moved(hand: Hand, moves: Callable[[Hand], dict[str, Any]]) -> None:
    seen = await hand.look()
    with pytest.raises(Moved, match="the code or its variables"):
        await hand.act(seen, **moves(hand))
    assert not hand.state.exists()


async def test_a_plan_is_named_by_all_that_it_does_and_stays_the_same_while_nothing_moves(hand: Hand) -> None:
    seen = await hand.look()
    assert seen.pending == {"terraform_data.a": "create"}
    hand.provider.forget(MODULE)
    assert (await hand.look()).plan == seen.plan
    assert (await hand.look(variables={"v": 2})).plan != seen.plan


async def test_an_old_plan_is_made_again_and_has_to_come_out_the_same(hand: Hand) -> None:
    seen = await hand.look()
    hand.clock.ahead = 600.0
    await hand.act(seen)
    assert hand.state.exists()
    runs = [path.name.partition("-")[2] for path in sorted((hand.root / "default/web/runs").iterdir())]
    assert runs == ["init", "plan", "plan", "apply"]


async def test_another_plan_than_the_one_that_was_decided_on_is_not_carried_out(hand: Hand) -> None:
    seen = await hand.look()
    await hand.act(seen)
    with pytest.raises(Moved):
        await hand.act(seen)
    assert (await hand.look()).pending == {}


async def test_one_at_a_time(hand: Hand) -> None:
    place = Place(hand.root / "default/web")
    with place.held(str), pytest.raises(Busy, match="another control plane is at work"):
        await hand.look()
    assert (await hand.look()).pending
    assert os.stat(place.root).st_mode & 0o077 == 0
