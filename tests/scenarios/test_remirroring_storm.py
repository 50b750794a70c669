"""Much failed at once, and the storm of repairs exhausted what was left."""

from __future__ import annotations

from tests.scenarios.fleet import Figures, Fleet, live_through

from homeostat.loop.fleet import Op
from homeostat.sim.world import Trouble

MUST_HOLD = "a limit on creations keeps the repair from becoming the next failure"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy={"creations": "10%"})
    fleet.world.trouble = Trouble(slow=1.0)
    for name in fleet.names[:15]:
        del fleet.world.things[name]
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, sum(1 for call in fleet.world.under_way() if call.op is Op.CREATE))
        return len(fleet.world.things) == len(fleet.names)

    came = await fleet.until(all_done, every=0.05)
    return Figures(most, 15, None, "by itself" if came else "not")


def test_few_are_made_again_at_a_time_and_all_in_the_end() -> None:
    figures = live_through(incident)
    assert figures.damage <= 2
    assert figures.came_back == "by itself"


def test_a_naive_loop_makes_as_many_as_it_has_hands() -> None:
    assert live_through(incident, naive=True).damage >= 4
