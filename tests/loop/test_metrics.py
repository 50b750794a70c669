"""What Prometheus is told of the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from homeostat.guards import Mode
from homeostat.loop.breaker import Breaker, Circuit
from homeostat.loop.figures import Level, Spread, Tally, text
from homeostat.loop.fleet import Cause, Drift, Fleet, Halt, Op, Ref, Verdict
from homeostat.loop.listener import Listener, Listeners
from homeostat.loop.metrics import Metrics

from .test_engine import FLEET
from .watched import KIND, eventually, watched


class Figures:
    """A scrape, as Prometheus reads it."""

    def __init__(self, scraped: bytes) -> None:
        families = list(text_string_to_metric_families(scraped.decode()))
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "two figures have one name"
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def get(self, metric: str, **labels: str) -> float | None:
        return self.samples.get((metric, frozenset(labels.items())))


async def test_a_fleet_is_shown_as_it_stands(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        names = await bench.full_house(3)
        bench.gate.mode = Mode.OBSERVE
        bench.gate.built_in.clear()
        bench.provider.world[names[0]]["colour"] = "green"
        del bench.provider.world[names[1]]
        bench.look_again()
        await eventually(lambda: _get(bench.metrics, "homeostat_holds", fleet=FLEET, guard="mode") == 2)
        figures = Figures(bench.metrics.text())
        assert figures.get("homeostat_fleet_size", fleet=FLEET) == 3
        assert figures.get("homeostat_fleet_drifted", fleet=FLEET) == 2
        assert figures.get("homeostat_fleet_unknown", fleet=FLEET) == 0
        assert figures.get("homeostat_drifts_open", fleet=FLEET, cause="drift") == 2
        age = figures.get("homeostat_oldest_drift_seconds", fleet=FLEET)
        assert age is not None
        assert 0 < age < 10


async def test_what_cannot_be_read_is_counted_as_unknown(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        await bench.full_house(2)
        bench.provider.broken["observe"] = "no route"
        bench.look_again()
        await eventually(lambda: _get(bench.metrics, "homeostat_fleet_unknown", fleet=FLEET) == 2)
        assert _get(bench.metrics, "homeostat_observations_total", kind=KIND, result="unknown") == 2


async def test_an_action_counts_with_what_became_of_it_and_how_long_it_took(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        await bench.full_house(2)
        figures = Figures(bench.metrics.text())
        assert figures.get("homeostat_actions_total", kind=KIND, op="create", outcome="done") == 2
        assert figures.get("homeostat_action_seconds_count", kind=KIND, op="create") == 2
        assert figures.get("homeostat_convergence_seconds_count", kind=KIND, cause="intent") == 2
        assert figures.get("homeostat_drifts_total", kind=KIND, cause="intent") == 2

        bench.provider.broken["apply"] = "no"
        bench.provider.world["lamp-0"]["colour"] = "green"
        bench.look_again()
        await eventually(
            lambda: _get(bench.metrics, "homeostat_actions_total", kind=KIND, op="update", outcome="failed")
        )
        assert _get(bench.metrics, "homeostat_convergence_seconds_count", kind=KIND, cause="drift") is None


async def test_what_heals_by_itself_is_no_convergence_of_ours(tmp_path: Path) -> None:
    async with watched(tmp_path, mode=Mode.OBSERVE) as bench:
        await bench.declare("hall", "red")
        await eventually(lambda: _get(bench.metrics, "homeostat_fleet_drifted", fleet=FLEET) == 1)
        bench.provider.world["hall"] = {"colour": "red", "watts": 10}
        bench.look_again()
        await eventually(lambda: _get(bench.metrics, "homeostat_fleet_drifted", fleet=FLEET) == 0)
        assert _get(bench.metrics, "homeostat_convergence_seconds_count", kind=KIND, cause="intent") is None


async def test_a_halt_is_seen_while_it_stands_and_counted_for_good(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        names = await bench.full_house(12)
        for name in names:
            bench.provider.world[name]["colour"] = "black"
        bench.look_again()
        await eventually(lambda: _get(bench.metrics, "homeostat_halts", fleet=FLEET, guard="mass-drift") == 1)
        for name in names:
            bench.provider.world[name]["colour"] = "red"

        def lifted() -> bool:
            bench.look_again()
            return _get(bench.metrics, "homeostat_halts", fleet=FLEET, guard="mass-drift") is None

        await eventually(lifted)
        assert _get(bench.metrics, "homeostat_halts_raised_total", fleet=FLEET, guard="mass-drift") == 1


async def test_the_names_of_controller_runtime_are_there_with_its_labels(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        await bench.full_house(1)
        figures = Figures(bench.metrics.text())
        assert (figures.get("controller_runtime_reconcile_total", controller=KIND, result="success") or 0) > 0
        assert figures.get("controller_runtime_reconcile_errors_total", controller=KIND) == 0
        assert figures.get("controller_runtime_reconcile_time_seconds_bucket", controller=KIND, le="60.0")
        assert figures.get("controller_runtime_max_concurrent_reconciles", controller="homeostat") == 4
        assert figures.get("controller_runtime_active_workers", controller="homeostat") is not None
        queue = {"name": "homeostat", "controller": "homeostat"}
        for name in ("adds_total", "queue_duration_seconds_count", "work_duration_seconds_count"):
            assert (figures.get(f"workqueue_{name}", **queue) or 0) > 0, name
        for name in ("retries_total", "unfinished_work_seconds", "longest_running_processor_seconds"):
            assert figures.get(f"workqueue_{name}", **queue) is not None, name
        assert figures.get("workqueue_depth", **queue, priority="change") is not None
        assert figures.get("workqueue_queue_duration_seconds_bucket", **queue, le="1e-08") is not None
        assert figures.get("process_resident_memory_bytes")


async def test_work_that_fails_is_an_error_and_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(tmp_path) as bench:
        controller = bench.engine.controllers[KIND]
        monkeypatch.setattr(controller, "look", lambda obj: _raise(RuntimeError("a defect")))
        await bench.declare("hall", "red")
        queue = {"name": "homeostat", "controller": "homeostat"}
        await eventually(lambda: _get(bench.metrics, "workqueue_retries_total", **queue))
        errors = _get(bench.metrics, "controller_runtime_reconcile_errors_total", controller=KIND)
        assert errors == _get(bench.metrics, "controller_runtime_reconcile_total", controller=KIND, result="error")
        assert errors


async def test_passes_are_timed(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        await bench.full_house(2)
        before = _get(bench.metrics, "homeostat_pass_seconds_count") or 0
        bench.look_again()
        await eventually(lambda: (_get(bench.metrics, "homeostat_pass_seconds_count") or 0) > before)
        assert _get(bench.metrics, "homeostat_pass_resources") == 2


async def test_of_an_engine_that_ended_only_what_it_did_is_shown(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        await bench.full_house(1)
    bench.metrics.detach()
    assert _get(bench.metrics, "homeostat_fleet_size", fleet=FLEET) is None
    assert _get(bench.metrics, "homeostat_actions_total", kind=KIND, op="create", outcome="done") == 1


def test_it_is_shown_which_kinds_are_kept_here() -> None:
    metrics = Metrics(lambda: {"lamps": True, "shops": False})
    assert _get(metrics, "leader_election_master_status", name="lamps") == 1
    assert _get(metrics, "leader_election_master_status", name="shops") == 0


async def test_no_label_names_an_object(tmp_path: Path) -> None:
    async with watched(tmp_path) as bench:
        names = await bench.full_house(3)
        shown = bench.metrics.text().decode()
        assert not [name for name in names if name in shown]


# Without an engine


def test_a_value_on_a_bound_counts_as_within() -> None:
    spread = Spread("x_seconds", "x", (1, 2), ("kind",))
    for value in (0.5, 1, 1.5, 3):
        spread["a",].add(value)
    figures = Figures(text([spread]))
    counts = [figures.get("x_seconds_bucket", kind="a", le=le) for le in ("1.0", "2.0", "+Inf")]
    assert counts == [2, 3, 4]
    assert figures.get("x_seconds_sum", kind="a") == 6
    assert figures.get("x_seconds_count", kind="a") == 4


def test_labels_are_escaped() -> None:
    tally, level = Tally("x_total", "x", ("guard",)), Level("y", "y", ("guard",))
    tally.counts['a"b\n',] += 2
    level.values["\\",] = 3
    figures = Figures(text([tally, level]))
    assert figures.get("x_total", guard='a"b\n') == 2
    assert figures.get("y", guard="\\") == 3


def test_breakers_that_move_are_told_once_and_counted() -> None:
    class Heard(Listener):
        def __init__(self) -> None:
            self.moves: list[tuple[str, Circuit]] = []

        def breaker_moved(self, fleet: Fleet, target: str, breaker: Breaker) -> None:
            self.moves.append((target, breaker.circuit))

    heard, metrics, fleet = Heard(), Metrics(), Fleet("f", 1)
    tell = Listeners([heard, metrics])
    steps: list[dict[str, Breaker]] = [
        {"api": Breaker(Circuit.CLOSED, 3)},
        {"api": Breaker(Circuit.OPEN, 5)},
        {"api": Breaker(Circuit.OPEN, 5)},
        {"api": Breaker(Circuit.HALF_OPEN, 5)},
        {},
    ]
    for breakers in steps:
        fleet.breakers = breakers
        tell.decided(fleet, Verdict(), 0.0)
    assert heard.moves == [("api", Circuit.OPEN), ("api", Circuit.HALF_OPEN), ("api", Circuit.CLOSED)]
    assert _get(metrics, "homeostat_breaker_moves_total", fleet="f", circuit="open") == 1


def test_a_halt_is_told_when_it_comes_and_when_it_goes() -> None:
    class Heard(Listener):
        def __init__(self) -> None:
            self.said: list[str] = []

        def halted(self, fleet: Fleet, halt: Halt) -> None:
            self.said.append(f"halted {halt.guard}")

        def lifted(self, fleet: Fleet, halt: Halt) -> None:
            self.said.append(f"lifted {halt.guard}")

    heard, fleet, halt = Heard(), Fleet("f", 1), Halt("cap", "too many", 1.0, "plan")
    tell = Listeners([heard])
    for halts in ({}, {"cap": halt}, {"cap": halt}, {}):
        tell.decided(fleet, Verdict(halts=halts), 0.0)
    assert heard.said == ["halted cap", "lifted cap"]


def test_a_listener_that_fails_harms_neither_the_loop_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Listener):
        def drift_opened(self, fleet: Fleet, drift: Drift) -> None:
            raise RuntimeError("full disk")

    metrics = Metrics()
    drift = Drift(Ref("lamps", "", "hall", "1"), Op.CREATE, Cause.INTENT, 0.0, "x")
    Listeners([Broken(), metrics]).drift_opened(Fleet("f", 1), drift)
    assert _get(metrics, "homeostat_drifts_total", kind="lamps", cause="intent") == 1
    assert "full disk" in caplog.text


def _get(metrics: Metrics, metric: str, **labels: str) -> float | None:
    return Figures(metrics.text()).get(metric, **labels)


async def _raise(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error
