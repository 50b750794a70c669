"""People get told: Events on objects and policies, and alerts by webhook, from what the loop says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from homeostat.client import Client
from homeostat.guards.alerts import CALM_SECONDS
from homeostat.guards.delivery import Alerts
from homeostat.guards.gate import DEFAULT, PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.guards.policy import GROUP, KIND, VERSION, Alert
from homeostat.guards.posting import Hosts
from homeostat.guards.runbook import WAYS_OUT
from homeostat.loop.engine import Engine
from homeostat.loop.events import About, Notice
from homeostat.loop.fleet import Fleet
from homeostat.loop.recorder import Events, Recorder
from homeostat.model.clock import Clock

TOLD = ("ownership", "flap", "breaker", "invariant")
"""Guards whose holds are told on the resource. Others hold what goes on by itself, or what a person closed."""


class Telling:
    """Both ways of telling, for one loop. Hand its `listeners` to the engine and `attach` it; it ends with the keeper.

    `always` are receivers who hear of every fleet; `hosts` says where webhooks may lead.
    """

    def __init__(
        self,
        client: Client,
        gate: PolicyGate,
        always: Sequence[Alert] = (),
        *,
        clock: Clock | None = None,
        hosts: Hosts | None = None,
        calm: float = CALM_SECONDS,
    ) -> None:
        self._gate = gate
        self._keeper: Keeper | None = None
        self.recorder = Recorder(client, clock)
        self.events = Events(self.recorder, self._policies, {guard: WAYS_OUT[guard] for guard in TOLD})
        self.alerts = Alerts(client, gate, always, clock=clock, hosts=hosts, calm=calm)
        self.listeners = (self.events, self.alerts)

    def attach(self, keeper: Keeper, engine: Engine) -> None:
        """Shows in the policies what was told, and finds objects by the engine's controllers."""
        self._keeper = keeper
        self.events.controllers = engine.controllers
        self.alerts.kept = lambda name: (keeper.policy(name) or {}).get("status") or {}
        self.alerts.changed = keeper.report_again
        keeper.telling = self

    async def stop(self) -> None:
        await self.alerts.stop()
        await self.recorder.stop()

    def say(self, policies: Iterable[str], reason: str, message: str) -> None:
        """Tells, on these policies, what somebody should look at."""
        for about in self._about(policies):
            if self.recorder.room(True):
                self.recorder.record(Notice(about, reason, message, warning=True))

    def _policies(self, fleet: Fleet) -> Iterator[About]:
        return self._about(self._gate.names(fleet) or (fleet.name.removeprefix(DEFAULT),))

    def _about(self, names: Iterable[str]) -> Iterator[About]:
        for name in names:
            policy = None if self._keeper is None else self._keeper.policy(name)
            if policy is not None:
                yield About(f"{GROUP}/{VERSION}", KIND, "", name, policy["metadata"]["uid"])
