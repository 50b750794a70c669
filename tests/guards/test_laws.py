"""The laws that hold whatever happens: drift, pushes, failures, lost verdicts, unreadable things, approvals."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.guards.approval import touched_before
from homeostat.guards.policy import Canary, Freeze
from homeostat.loop.fleet import Cause, Drift, Grant, Op, Phase, share

from .fleets import NOW, a_fleet, changes, drift, in_flight, ref, step, verify_all

EXISTING = (Op.UPDATE, Op.DELETE)
OBSERVED = GuardPolicy(mode=Mode.OBSERVE)
FROZEN = GuardPolicy(mode=Mode.ENFORCE, freezes=(Freeze(reason="law", author="ada"),))


class Play(RuleBasedStateMachine):
    """Plays the engine and the world against `decide`."""

    @initialize(size=st.integers(1, 40), cap=st.sampled_from(["10%", "25%", 1, 3]), zones=st.booleans())
    def begin(self, size: int, cap: int | str, zones: bool) -> None:
        self.policy = GuardPolicy(mode=Mode.ENFORCE, cap=cap, canary=Canary(verify_within=timedelta(seconds=100)))
        self.fleet = a_fleet(size)
        self.now = NOW
        self.zones = zones
        self.loud: dict[Op, int] = {}  # passes begun when there was last too much
        self.given: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.facts = 0

    def opens(self, numbers: set[int], op: Op, cause: Cause, change_set: str = "") -> None:
        for number in sorted(numbers):
            name = f"new-{number}" if op is Op.CREATE else number % self.fleet.size
            if ref(name) in self.fleet.drifts:
                continue
            self.facts += 1
            zone = f"zone-{number % 3}" if self.zones else ""
            made = f"facts-{self.facts}"
            drift(self.fleet, [name], op, cause, change_set=change_set, since=self.now, made_from=made, domain=zone)

    @rule(numbers=st.sets(st.integers(0, 39), max_size=8), op=st.sampled_from(Op))
    def reality_drifts(self, numbers: set[int], op: Op) -> None:
        self.opens(numbers, op, Cause.DRIFT)

    @rule(numbers=st.sets(st.integers(0, 39), max_size=20), op=st.sampled_from(Op), push=st.integers(1, 3))
    def somebody_pushes(self, numbers: set[int], op: Op, push: int) -> None:
        self.opens(numbers, op, Cause.INTENT, f"push-{push}")

    @rule()
    def decides_and_begins(self) -> None:
        before = repr(self.fleet)
        verdict = decide(self.policy, self.fleet, self.now)
        assert repr(self.fleet) == before, "deciding changed something"
        assert decide(self.policy, self.fleet, self.now) == verdict, "the same question had two answers"
        self.check_everyone_has_an_answer(verdict)
        self.check_halts(verdict)
        for closed in (OBSERVED, FROZEN):
            assert decide(closed, self.fleet, self.now).allowed == []
        self.fleet.take(verdict)
        for one in verdict.allowed:
            self.fleet.begin(one, self.now)
        cap = share(self.policy.cap, self.fleet.size)
        for op in EXISTING:
            assert in_flight(self.fleet, op) <= cap

    def check_everyone_has_an_answer(self, verdict) -> None:
        allowed = {d.ref for d in verdict.allowed}
        waiting = {d.ref for d in self.fleet.drifts.values() if not d.in_flight}
        assert allowed | verdict.held.keys() == waiting
        assert not allowed & verdict.held.keys()
        assert not allowed & self.fleet.unknown.keys()
        for one, hold in verdict.held.items():
            assert hold.reason
            assert self.fleet.drifts[one].op is not Op.CREATE or hold.guard not in (
                "cap",
                "mass-drift",
                "domain",
                "deletion",
            )

    def check_halts(self, verdict) -> None:
        touching = [d for d in verdict.allowed if d.op is not Op.CREATE]
        if len(self.fleet.unknown) > share("20%", self.fleet.size):
            assert verdict.allowed == []
        for key, halt in verdict.halts.items():
            if halt.guard == "mass-drift":
                assert touching == []
            elif halt.guard == "canary":
                assert halt.change_set not in {d.wave for d in verdict.allowed}
            if key not in self.fleet.halts:
                assert halt.since == self.now
        assert verdict.used <= self.fleet.approvals
        self.used.update(verdict.used)
        assert all(self.used[plan] <= self.given[plan] for plan in self.used)
        for op in EXISTING:
            self.check_way_out(verdict, op)

    def check_way_out(self, verdict, op: Op) -> None:
        """A mass-drift halt leaves by a whole quiet pass, or by an approval, and by nothing else."""
        drifts = [
            d
            for d in self.fleet.drifts.values()
            if d.op is op and not d.is_approved and d.ref not in verdict.approved
        ]
        touched = len(touched_before(self.fleet, drifts, op))
        count = len(drifts) + touched
        limit = share("30%", self.fleet.size + (touched if op is Op.DELETE else 0))
        key = f"mass-drift/{op}"
        if count > limit and self.fleet.size >= 10:
            assert key in verdict.halts
            self.loud[op] = self.fleet.passes_begun
        elif key in self.fleet.halts and key not in verdict.halts:
            by_approval = any(self.fleet.drifts[one].op is op for one in verdict.approved)
            assert by_approval or self.fleet.passes_done > self.loud[op]

    def under_way(self) -> list[Drift]:
        return [d for d in self.fleet.drifts.values() if d.in_flight]

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def one_is_verified(self, data: st.DataObject) -> None:
        self.fleet.verified(data.draw(st.sampled_from(self.under_way())).ref)

    @precondition(lambda self: self.under_way())
    @rule()
    def all_are_verified(self) -> None:
        verify_all(self.fleet)

    @precondition(lambda self: self.under_way())
    @rule(data=st.data(), wait=st.integers(0, 50))
    def one_fails(self, data: st.DataObject, wait: int) -> None:
        self.fleet.failed(data.draw(st.sampled_from(self.under_way())).ref, retry_at=self.now + wait)

    @precondition(lambda self: self.under_way())
    @rule(data=st.data())
    def a_verdict_gets_lost(self, data: st.DataObject) -> None:
        del self.fleet.drifts[data.draw(st.sampled_from(self.under_way())).ref]

    @precondition(lambda self: self.fleet.drifts)
    @rule(data=st.data())
    def one_is_moot(self, data: st.DataObject) -> None:
        self.fleet.forget(data.draw(st.sampled_from(sorted(self.fleet.drifts))))

    @precondition(lambda self: any(not d.in_flight for d in self.fleet.drifts.values()))
    @rule(data=st.data())
    def facts_move(self, data: st.DataObject) -> None:
        waiting = sorted(r for r, d in self.fleet.drifts.items() if not d.in_flight)
        self.facts += 1
        self.fleet.drifts[data.draw(st.sampled_from(waiting))].made_from = f"facts-{self.facts}"

    @rule(numbers=st.sets(st.integers(0, 39), max_size=10))
    def some_cannot_be_read(self, numbers: set[int]) -> None:
        self.fleet.unknown = {ref(n): "timed out" for n in numbers if n < self.fleet.size}

    @rule()
    def a_pass_begins(self) -> None:
        self.fleet.pass_begun()

    @rule()
    def a_pass_ends(self) -> None:
        self.fleet.pass_done()

    @rule(seconds=st.integers(1, 120))
    def time_goes_by(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def a_person_approves_what_is_named(self) -> None:
        verdict = decide(self.policy, self.fleet, self.now)
        plans = {h.plan for h in (*verdict.halts.values(), *verdict.held.values())} - {""} - self.fleet.approvals
        self.given.update(plans)
        self.fleet.approvals |= plans

    def teardown(self) -> None:
        """There is always a way out: with the faults over, a person who approves, and honest work, everything gets done."""
        if not hasattr(self, "fleet"):
            return
        self.fleet.unknown = {}
        for _ in range(4 * len(self.fleet.drifts) + 10):
            self.a_pass_begins()
            self.a_pass_ends()
            self.a_person_approves_what_is_named()
            self.decides_and_begins()
            verify_all(self.fleet)
            self.now += 200
        assert self.fleet.drifts == {}


Play.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPlay = Play.TestCase


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(10, 200),
    repairs=st.integers(0, 60),
    pushes=st.lists(st.integers(1, 60), max_size=3),
    births=st.integers(0, 20),
)
def test_honest_work_is_done_in_a_bounded_number_of_waves(size, repairs, pushes, births):
    fleet = a_fleet(size)
    policy = GuardPolicy(mode=Mode.ENFORCE)
    limit, total = share("30%", size), 0
    number = iter(range(size))
    for count, change_set in [(repairs, ""), *((count, f"push-{i}") for i, count in enumerate(pushes))]:
        mine = [n for n, _ in zip(number, range(count), strict=False)]
        total += len(mine)
        if change_set:
            changes(fleet, mine, change_set)
            fleet.grants[change_set] = Grant(changes=len(mine))  # its author was shown the plan
        else:
            drift(fleet, mine[:limit])
    drift(fleet, [f"new-{n}" for n in range(births)], Op.CREATE, Cause.INTENT)
    bound = -(-total // share(policy.cap, size)) + 4 * len(pushes) + 1
    for _ in range(bound):
        if not fleet.drifts:
            break
        assert step(policy, fleet)
        verify_all(fleet)
    assert fleet.drifts == {}


@given(
    size=st.integers(10, 100), share_of=st.floats(0.31, 1), op=st.sampled_from(EXISTING), cause=st.sampled_from(Cause)
)
def test_a_mass_of_drift_that_is_there_at_the_first_look_costs_nothing(size, share_of, op, cause):
    fleet = a_fleet(size)
    drift(fleet, range(max(int(size * share_of), share("30%", size) + 1)), op, cause, change_set="push-1")
    assert step(GuardPolicy(mode=Mode.ENFORCE), fleet) == []


@given(size=st.integers(1, 100), count=st.integers(1, 100))
def test_a_bad_push_touches_one_and_stops(size, count):
    fleet = a_fleet(size, grants={"push-1": Grant(changes=count)})
    changes(fleet, range(min(count, size)))
    for _ in range(5):
        for one in step(GuardPolicy(mode=Mode.ENFORCE), fleet):
            fleet.failed(one)
    assert sum(d.attempts > 0 for d in fleet.drifts.values()) == 1
    assert {d.phase for d in fleet.drifts.values()} <= {Phase.OPEN, Phase.FAILED}
