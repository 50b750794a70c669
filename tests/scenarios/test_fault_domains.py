"""Maintenance took several fault domains at once."""

from __future__ import annotations

from tests.scenarios.fleet import Figures, Fleet, live_through

from homeostat.loop.fleet import Op
from homeostat.sim.world import Trouble

MUST_HOLD = "one fault domain at a time"
ZONES = 4


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(zones=ZONES, policy={"cap": "100%", "massDrift": {"limit": "100%"}})
    fleet.world.trouble = Trouble(slow=1.0)
    fleet.drift(fleet.names)
    most = 0

    def all_done() -> bool:
        nonlocal most
        zones = {int(call.name[-2:]) % ZONES for call in fleet.world.under_way() if call.op is Op.UPDATE}
        most = max(most, len(zones))
        return fleet.colours() == {"red": len(fleet.names)}

    came = await fleet.until(all_done, every=0.05)
    return Figures(most, ZONES, None, "by itself" if came else "not")


def test_only_one_domain_is_worked_on_at_a_time() -> None:
    figures = live_through(incident)
    assert figures.damage == 1
    assert figures.came_back == "by itself"


def test_a_naive_loop_works_on_all_of_them() -> None:
    assert live_through(incident, naive=True).damage == ZONES
