"""What the loop tells Prometheus. Where controller-runtime has a figure, ours has its name, labels and buckets: its dashboards fit.

No label names an object: their number hangs on kinds, policies and guards, not on how much there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from homeostat.loop.breaker import Breaker, Circuit
from homeostat.loop.figures import Figure, Level, Spread, Tally, text
from homeostat.loop.fleet import Drift, Fleet, Halt, Verdict
from homeostat.loop.listener import Closed, Listener, Outcome, Result
from homeostat.loop.observation import Unknown
from homeostat.loop.queue import Priority

if TYPE_CHECKING:
    from homeostat.loop.controller import Seen
    from homeostat.loop.engine import Engine

QUEUE = ("homeostat", "homeostat")
"""One queue and one set of workers serve all kinds: the labels `name` and `controller` of both."""
_QUEUE_LABELS = ("name", "controller")

_RECONCILE_BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
_QUEUE_BOUNDS = tuple(float(f"1e{power}") for power in range(-8, 4))
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class QueueFigures:
    """What the queue tells as it happens."""

    def __init__(self) -> None:
        self.adds = Tally("workqueue_adds_total", "Keys that came to wait.", _QUEUE_LABELS)
        self.retries = Tally("workqueue_retries_total", "Keys that failed and come again.", _QUEUE_LABELS)
        self.waits = Spread(
            "workqueue_queue_duration_seconds", "How long keys waited for a worker.", _QUEUE_BOUNDS, _QUEUE_LABELS
        )
        self.works = Spread(
            "workqueue_work_duration_seconds", "How long keys were worked on.", _QUEUE_BOUNDS, _QUEUE_LABELS
        )
        self.adds.counts[QUEUE] = self.retries.counts[QUEUE] = 0
        self.queue_duration_seconds = self.waits[QUEUE].add
        self.work_duration_seconds = self.works[QUEUE].add

    def adds_total(self, count: int) -> None:
        self.adds.counts[QUEUE] += count

    def retries_total(self) -> None:
        self.retries.counts[QUEUE] += 1

    def figures(self) -> Iterator[Figure]:
        yield from (self.adds, self.retries, self.waits, self.works)


class Metrics(Listener):
    """Counts what an engine does::

    metrics = Metrics()
    engine = Engine(..., listeners=[metrics], queue_metrics=metrics.queue)
    metrics.attach(engine)
    metrics.text()
    """

    def __init__(self, leads: Callable[[], Mapping[str, bool]] = dict) -> None:
        """`leads` says of which kinds this loop is the one that keeps them, where several share the work."""
        self.queue = QueueFigures()
        self._leads = leads
        self._engine: Engine | None = None
        self._holds: dict[str, Counter[str]] = {}
        self._reconciles = Tally(
            "controller_runtime_reconcile_total", "Keys worked on, by kind and how it ended.", ("controller", "result")
        )
        self._reconcile_seconds = Spread(
            "controller_runtime_reconcile_time_seconds",
            "How long the work on a key took.",
            _RECONCILE_BOUNDS,
            ("controller",),
        )
        self._observations = Tally("homeostat_observations_total", "Looks, by what was found.", ("kind", "result"))
        self._observation_seconds = Spread("homeostat_observation_seconds", "How long a look took.", _BOUNDS, ("kind",))
        self._opened = Tally("homeostat_drifts_total", "Differences found.", ("kind", "cause"))
        self._convergence = Spread(
            "homeostat_convergence_seconds",
            "From when a difference was first seen until we had made it as declared.",
            _LONG_BOUNDS,
            ("kind", "cause"),
        )
        self._decision_seconds = Spread(
            "homeostat_decision_seconds", "How long the guards took to judge a fleet.", _BOUNDS
        )
        self._halted = Tally("homeostat_halts_raised_total", "Times that a guard closed the gate.", ("fleet", "guard"))
        self._tripped = Tally("homeostat_breaker_moves_total", "Moves of breakers.", ("fleet", "circuit"))
        self._actions = Tally("homeostat_actions_total", "Actions, by what became of them.", ("kind", "op", "outcome"))
        self._action_seconds = Spread(
            "homeostat_action_seconds", "How long an action took, its reading back included.", _BOUNDS, ("kind", "op")
        )
        self._pass_seconds = Spread("homeostat_pass_seconds", "How long a look at every resource took.", _LONG_BOUNDS)
        self._pass_resources = Level("homeostat_pass_resources", "Resources looked at in the last whole pass.")

    def attach(self, engine: Engine) -> None:
        """Shows how fleets, queue and workers of this engine stand, each time that somebody asks."""
        self._engine = engine
        self._holds.clear()

    def detach(self) -> None:
        """The engine has ended: how it stood is shown no more, what it did is."""
        self._engine = None

    # What is heard

    def worked(self, kind: str, seconds: float, result: Result) -> None:
        self._reconciles.counts[kind, result] += 1
        self._reconcile_seconds[kind,].add(seconds)

    def looked(self, fleet: Fleet, seen: Seen) -> None:
        kind, observation = seen.ref.kind, seen.observation
        if isinstance(observation.state, Unknown):
            result = "unknown"
        elif seen.diff:
            result = "drift"
        else:
            result = "unhealthy" if seen.unhealthy else "same"
        self._observations.counts[kind, result] += 1
        self._observation_seconds[kind,].add(observation.took)

    def drift_opened(self, fleet: Fleet, drift: Drift) -> None:
        self._opened.counts[drift.ref.kind, drift.cause] += 1

    def drift_closed(self, fleet: Fleet, drift: Drift, seconds: float, why: Closed) -> None:
        if why is Closed.ACTED:
            self._convergence[drift.ref.kind, drift.cause].add(seconds)

    def decided(self, fleet: Fleet, verdict: Verdict, seconds: float) -> None:
        self._decision_seconds[()].add(seconds)
        self._holds[fleet.name] = Counter(hold.guard for hold in verdict.held.values())

    def halted(self, fleet: Fleet, halt: Halt) -> None:
        self._halted.counts[fleet.name, halt.guard] += 1

    def breaker_moved(self, fleet: Fleet, target: str, breaker: Breaker) -> None:
        self._tripped.counts[fleet.name, breaker.circuit] += 1

    def acted(self, fleet: Fleet, drift: Drift, seconds: float, outcome: Outcome, error: str = "") -> None:
        self._actions.counts[drift.ref.kind, drift.op, outcome] += 1
        self._action_seconds[drift.ref.kind, drift.op].add(seconds)

    def pass_done(self, count: int, seconds: float) -> None:
        self._pass_seconds[()].add(seconds)
        self._pass_resources.values[()] = count

    # What is shown

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return text(self.figures())

    def figures(self) -> Iterator[Figure]:
        """All of it."""
        errors = Tally("controller_runtime_reconcile_errors_total", "Keys whose work failed.", ("controller",))
        for (kind, result), count in self._reconciles.counts.items():
            errors.counts[kind,] += count if result == Result.ERROR else 0
        yield from (self._reconciles, errors, self._reconcile_seconds)
        yield from self.queue.figures()
        if self._engine is not None:
            yield from _workers(self._engine)
            yield from _fleets(self._engine, self._holds)
        yield from (self._observations, self._observation_seconds, self._opened, self._convergence)
        yield from (self._decision_seconds, self._halted, self._tripped, self._actions, self._action_seconds)
        yield from (self._pass_seconds, self._pass_resources)
        leading = Level(
            "leader_election_master_status", "1 where this loop keeps a kind, 0 where another does.", ("name",)
        )
        for kind, leads in self._leads().items():
            leading.values[kind,] = leads
        yield leading


def _workers(engine: Engine) -> Iterator[Figure]:
    queue = engine.queue
    depth = Level("workqueue_depth", "Keys that wait for a worker.", (*_QUEUE_LABELS, "priority"))
    for priority in Priority:
        depth.values[*QUEUE, priority.name.lower()] = queue.depth(priority)
    yield depth
    for name, what, value in (
        ("unfinished_work_seconds", "For how long all keys in work are worked on.", queue.unfinished_work_seconds()),
        (
            "longest_running_processor_seconds",
            "For how long the key longest in work is worked on.",
            queue.longest_running_processor_seconds(),
        ),
    ):
        level = Level(f"workqueue_{name}", what, _QUEUE_LABELS)
        level.values[QUEUE] = value
        yield level
    for name, what, count in (
        ("active_workers", "Workers that have a key.", queue.working),
        ("max_concurrent_reconciles", "Workers that there are.", engine.workers),
    ):
        level = Level(f"controller_runtime_{name}", what, ("controller",))
        level.values[QUEUE[1],] = count
        yield level


def _fleets(engine: Engine, holds: dict[str, Counter[str]]) -> Iterator[Figure]:
    """How each fleet stands. What one policy selects is a fleet."""
    one = ("fleet",)
    size = Level("homeostat_fleet_size", "Resources that exist, or should.", one)
    drifted = Level("homeostat_fleet_drifted", "Resources that are not as declared.", one)
    unknown = Level("homeostat_fleet_unknown", "Resources that could not be read.", one)
    unhealthy = Level("homeostat_fleet_unhealthy", "Resources that are as declared, and not well.", one)
    oldest = Level("homeostat_oldest_drift_seconds", "Age of the difference that is open longest.", one)
    wave = Level("homeostat_wave_size", "Existing things in the waves under way.", one)
    causes = Level("homeostat_drifts_open", "Open differences, by cause.", ("fleet", "cause"))
    halts = Level("homeostat_halts", "Halts that stand.", ("fleet", "guard"))
    held = Level("homeostat_holds", "Differences that a guard holds.", ("fleet", "guard"))
    breakers = Level("homeostat_breakers", "Targets whose breaker is not closed.", ("fleet", "circuit"))
    now = engine.clock.now()
    for name, fleet in engine.fleets.items():
        size.values[name,] = fleet.size
        drifted.values[name,] = len(fleet.drifts)
        unknown.values[name,] = len(fleet.unknown)
        unhealthy.values[name,] = len(fleet.unhealthy)
        oldest.values[name,] = max((now - drift.since for drift in fleet.drifts.values()), default=0.0)
        wave.values[name,] = sum(len(one.members) for one in fleet.waves.values())
        for drift in fleet.drifts.values():
            causes.values[name, drift.cause] += 1
        for halt in fleet.halts.values():
            halts.values[name, halt.guard] += 1
        for guard, count in holds.get(name, {}).items():
            held.values[name, guard] = count
        for circuit in (Circuit.OPEN, Circuit.HALF_OPEN):
            breakers.values[name, circuit] = sum(one.circuit is circuit for one in fleet.breakers.values())
    yield from (size, drifted, unknown, unhealthy, oldest, wave, causes, halts, held, breakers)
