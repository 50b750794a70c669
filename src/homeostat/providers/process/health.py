"""Probes of one replica: whether it is ready and alive, as far as is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from homeostat.loop.checks import from_spec
from homeostat.loop.probes import Check, ProbePolicy, ProbeState, Verdict, run_probe
from homeostat.loop.provider import Refused
from homeostat.model.kinds import encode
from homeostat.providers.process.kind import Probe, ProcessSpec, definition_of
from homeostat.providers.process.launch import Allowed, environment, program
from homeostat.providers.process.record import Replica

_HERE = "127.0.0.1"


def check_of(probe: Probe, spec: ProcessSpec, index: int, allowed: Allowed) -> tuple[ProbePolicy, Check]:
    """How to look. `Refused` where it cannot be done, or a command is not allowed."""
    wire = encode(probe, defaults=False)
    env: Mapping[str, str] = {**environment(definition_of(spec)), "HOMEOSTAT_INDEX": str(index)}
    if probe.exec is not None:
        if spec.user:
            raise Refused(
                f"a command that probes would run as the control plane, not as {spec.user}: probe by httpGet, tcpSocket or grpc"
            )
        path = program(probe.exec.command[0], env, "/", allowed)
        wire["exec"] = {"command": [path, *probe.exec.command[1:]]}
    try:
        return from_spec(wire, _HERE, env)
    except ValueError as error:
        raise Refused(str(error)) from None


class Health:
    """Watches one replica until it is closed, and calls `turned` when what is believed changes.

    It begins with what was known of readiness before a restart; a replica is alive until its probe says otherwise.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        index: int,
        replica: Replica,
        allowed: Allowed,
        now: Callable[[], float],
        turned: Callable[[], None],
    ) -> None:
        self.nonce = replica.nonce
        self.readiness, self.liveness = spec.readiness, spec.liveness
        self.ready = spec.readiness is None or replica.ready
        self.alive = True
        self.said = ""
        self._turned = turned
        self._tasks: list[asyncio.Task[None]] = []
        up = max(0.0, now() - replica.began)
        for probe, tell in ((spec.readiness, self._ready), (spec.liveness, self._alive)):
            if probe is None:
                continue
            try:
                policy, check = check_of(probe, spec, index, allowed)
            except Refused as error:
                self.said = str(error)
                continue
            policy = replace(policy, initial_delay=max(0.0, policy.initial_delay - up))
            known = Verdict.PASSING if replica.ready and tell == self._ready else Verdict.UNKNOWN
            self._tasks.append(asyncio.create_task(run_probe(policy, check, tell, now=now, state=ProbeState(known))))

    def fits(self, spec: ProcessSpec, replica: Replica) -> bool:
        """Whether it watches this start of a replica in the way that is declared now."""
        return self.nonce == replica.nonce and self.readiness == spec.readiness and self.liveness == spec.liveness

    def close(self) -> None:
        """Stops looking."""
        for task in self._tasks:
            task.cancel()

    def _ready(self, state: ProbeState) -> None:
        ready, before = state.verdict is Verdict.PASSING, self.ready
        self.ready, self.said = ready, state.message
        if ready is not before:
            self._turned()

    def _alive(self, state: ProbeState) -> None:
        alive, before = state.verdict is not Verdict.FAILING, self.alive
        self.alive = alive
        if alive is not before:
            self._turned()
