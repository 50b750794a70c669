"""`homeostat explain`: the whole chain of a decision, for one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ago, echo_lines, emit, output_option, painted

if TYPE_CHECKING:
    from homeostat.cli.fleets import View
    from homeostat.client import Client
    from homeostat.loop.fleet import Hold, Ref

_REPORTER = "homeostat"


@click.command()
@click.argument("kind")
@click.argument("name")
@output_option("text", "json", "yaml")
@server_options()
def command(server: Connection, kind: str, name: str, output: str) -> None:
    """Explain why a thing is as it is: when it was observed, what differs, who caused it, what each guard says, what comes next.

    \b
    Examples:
      homeostat explain file motd
      homeostat explain process web -n shop -o json

    Exits with 0, or 1 where the kind or the object is not there.
    """

    async def read(client: Client) -> tuple[View, Ref]:
        from homeostat.cli.fleets import look, ref_of
        from homeostat.cli.kinds import kind_named

        found = await kind_named(client, kind)
        if not found.kept:
            raise click.ClickException(f"{found.kind} is no kind that the loop keeps: nothing decides about it")
        obj = await found.on(client).get(name)
        view = await look(client, [found])
        return view, next((ref for ref in view.objects if ref == ref_of(found, obj)), ref_of(found, obj))

    view, ref = server.run(read)
    if ref not in view.objects:
        raise click.ClickException(f"{ref} went away just now")
    chain = _Chain(view, ref)
    if output == "text":
        echo_lines(chain.lines())
    else:
        emit(chain.data(), output)


class _Chain:
    """Everything that is known of one resource's last decision."""

    def __init__(self, view: View, ref: Ref) -> None:
        from homeostat.cli.fleets import hold_of
        from homeostat.guards import explain

        self.view, self.ref, self.obj = view, ref, view.objects[ref]
        self.fleet = view.fleet_of(ref)
        self.policy = view.gate.policy(self.fleet)
        self.drift = self.fleet.drifts.get(ref)
        self.hold = hold_of(self.obj)
        self.halts = view.halts(self.fleet)
        said = explain(self.policy, self.fleet, ref, view.now) if self.drift is not None else []
        self.guards: dict[str, Hold | None] = {}  # some judge twice: what one of them holds is held
        for guard, hold in said:
            self.guards[guard] = self.guards.get(guard) or hold
        self.status: dict[str, Any] = self.obj.get("status") or {}

    def lines(self) -> Iterator[str]:
        """For people, from what was seen to what comes next."""
        from homeostat.cli.openplan import title_of

        policies = [policy["metadata"]["name"] for policy in self.view.policies_of(self.fleet)]
        yield click.style(title_of(self.view, self.ref), bold=True)
        yield f"  fleet      {self.fleet.name}: {self.fleet.size} in it, {len(self.fleet.drifts)} differ, mode {self.policy.mode}"
        if policies:
            yield f"  policy     {', '.join(policies)}"
        yield f"  declared   {self._declared()}"
        yield f"  observed   {self._observed()}"
        yield from self._difference()
        yield f"  decision   {self._decision()}"
        for halt in self.halts:
            yield f"  halt       {halt.guard}: {halt.reason}"
        if self.guards:
            yield "  guards"
            width = max(map(len, self.guards))
            for name, hold in self.guards.items():
                said = "lets it through" if hold is None else f"holds it: {hold.reason}"
                yield f"    {name.ljust(width)}  {said}"
        yield f"  next       {self._next()}"

    def data(self) -> dict[str, Any]:
        """For programs."""
        from homeostat.cli.openplan import drift_data

        return {
            "resource": str(self.ref),
            "fleet": self.fleet.name,
            "mode": str(self.policy.mode),
            "declared": self._declared(),
            "observed": self._observed(),
            "drift": None if self.drift is None else drift_data(self.view, self.ref, self.drift),
            "decision": self._decision(),
            "halts": [{"guard": h.guard, "reason": h.reason, "plan": h.plan} for h in self.halts],
            "guards": [{"guard": name, "holds": hold.reason if hold else ""} for name, hold in self.guards.items()],
            "next": self._next(),
        }

    def _declared(self) -> str:
        metadata = self.obj["metadata"]
        written = [e for e in metadata.get("managedFields") or () if "f:spec" in (e.get("fieldsV1") or {})]
        last: dict[str, Any] = max(written, key=lambda entry: entry.get("time", ""), default={})
        by = f", last by {last['manager']} at {last.get('time', '?')}" if last else ""
        return f"generation {metadata.get('generation', 0)}{by}"

    def _observed(self) -> str:
        from homeostat.model.clock import parse_time

        seen = self.status.get("observedGeneration")
        if seen is None:
            return "never: no loop has looked at it. Is its provider on?"
        current = "the present one" if seen == self.obj["metadata"].get("generation") else "not yet the present one"
        said = f"generation {seen}, {current}"
        if not (text := self.status.get("observedAt")):
            return said
        at = parse_time(text)
        looked = max(at, self.view.passes.get(self.ref.kind, 0.0))
        return f"{said}; looked at {ago(self.view.now - looked)} ago, and found so since {text}"

    def _difference(self) -> Iterator[str]:
        if self.drift is None:
            why = self.fleet.unknown.get(self.ref)
            yield f"  differs    {'unknown: ' + why if why is not None else 'no'}"
            return
        drift = self.drift
        by = f", by {' and '.join(drift.by)}" if drift.by else ""
        yield f"  differs    to {drift.op}, for {ago(self.view.now - drift.since)}"
        yield f"  cause      {_CAUSES[drift.cause]}{by}" + (
            f"; change set {drift.change_set}" if drift.change_set else ""
        )
        for line in drift.changes or drift.paths:
            yield "    " + painted(line)
        if drift.attempts:
            yield f"  tried      {drift.attempts} times, {drift.failures} failed in a row"

    def _decision(self) -> str:
        from homeostat.model.conditions import find_condition

        ready = find_condition(self.obj, "Ready") or {}
        if self.hold is not None:
            return f"held by {self.hold.guard}: {self.hold.reason}"
        return f"{ready.get('reason', 'none yet')}: {ready.get('message', '')}".rstrip(": ")

    def _next(self) -> str:
        from homeostat.guards.runbook import WAYS_OUT

        plan = next((halt.plan for halt in self.halts if self.hold and halt.guard == self.hold.guard and halt.plan), "")
        if plan:
            return f"a fix, then a whole pass; or, if it is meant: homeostat approve {plan}"
        if self.hold is not None:
            way = WAYS_OUT.get(self.hold.guard, "")
            return way.format(fleet=self.fleet.name) if way else "it goes on by itself when the guard lets it"
        if self.drift is not None:
            return "it is tried again, later after each failure" if self.drift.failures else "it is being done"
        if self.ref in self.fleet.unknown:
            return "it is looked at again with the next pass; nothing is done until it can be read"
        return "nothing, until something changes; every pass looks at it"


_CAUSES = {
    "intent": "the declaration changed",
    "drift": "reality changed",
    "both": "the declaration changed, and reality too",
}
