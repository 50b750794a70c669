"""From what was measured to replicas: nothing but numbers in and numbers out."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.loop.laws import Loop
from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Metric, Reading
from homeostat.loop.scaling import Scaled
from homeostat.model.kinds import decode
from homeostat.providers.autoscaler.deciding import Outcome, Replicas, decide, from_memory, retuned, to_memory, when
from homeostat.providers.autoscaler.spec import AutoscalerSpec

T0 = 1_700_000_000.0
AT_ONCE = {"window": "0s", "percent": 100_000}
LAWS: list[dict[str, Any]] = [
    {"proportional": {"target": 50}},
    {"proportional": {"target": 50, "total": True}},
    {"step": {"target": 50, "band": 5}},
    {"onOff": {"low": 10, "high": 80}},
    {"pid": {"target": 50, "kp": 0.1, "ki": 0.01, "kd": 1}},
]


def declared(*laws: dict[str, Any], **more: Any) -> AutoscalerSpec:
    over = {"apiVersion": "v1", "kind": "ConfigMap"}
    metrics = [{"name": f"m{n}", "law": law, "cel": {"expression": "1", "over": over}} for n, law in enumerate(laws)]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    pace = {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE}
    return decode(AutoscalerSpec, {"target": target, "maxReplicas": 20, "metrics": metrics, **pace, **more})


def decided(
    spec: AutoscalerSpec, current: int, *values: float | None, scaled: Scaled | None = None, loops: Any = None
) -> Outcome:
    measured: list[Metric] = [Unknown("lost") if v is None else Reading(v, T0) for v in values]
    return decide(spec, scaled or Scaled(), loops or {}, measured, Replicas(current, current), T0)


@pytest.mark.parametrize("law", LAWS)
def test_no_law_acts_on_what_cannot_be_read(law: dict[str, Any]) -> None:
    for value in (None, float("nan"), float("inf")):
        outcome = decided(declared(law), 5, value)
        assert outcome.desired == 5
        assert outcome.blind is not None


@pytest.mark.parametrize("law", LAWS)
def test_a_stale_reading_is_none(law: dict[str, Any]) -> None:
    measured = [Reading(1000.0, T0 - 61)]
    outcome = decide(declared(law, staleAfter="60s"), Scaled(), {}, measured, Replicas(5, 5), T0)
    assert outcome.desired == 5
    assert outcome.blind == Unknown("m0: the last reading is more than 60 s old")


def test_the_sense_of_a_law_may_be_the_other_way_round() -> None:
    step = {"step": {"target": 50, "sense": "Raises"}}  # idle workers: more replicas, more of them
    assert decided(declared(step), 5, 80).desired == 4
    assert decided(declared(step), 5, 20).desired == 6
    switch = {"onOff": {"low": 10, "high": 80, "onReplicas": 9, "offReplicas": 2, "sense": "Raises"}}
    assert decided(declared(switch), 2, 5).desired == 9
    assert decided(declared(switch), 9, 85).desired == 2


def test_a_switch_stays_on_as_long_as_it_has_to() -> None:
    spec = declared({"onOff": {"low": 10, "high": 80, "onReplicas": 9, "offReplicas": 2, "leastOn": "10m"}})
    assert decided(spec, 9, 0, scaled=Scaled(seen=9, moved=T0 - 599)).desired == 9
    assert decided(spec, 9, 0, scaled=Scaled(seen=9, moved=T0 - 601)).desired == 2


def test_laws_of_different_kinds_agree_on_the_largest() -> None:
    spec = declared({"step": {"target": 50}}, {"proportional": {"target": 10, "total": True}})
    assert decided(spec, 5, 80, 10).desired == 6
    assert decided(spec, 5, 20, 90).desired == 9
    assert decided(spec, 5, 20, 10).desired == 4


def test_other_gains_go_on_from_the_same_output() -> None:
    before = declared({"pid": {"target": 50, "kp": 0.1, "ki": 0.01}})
    after = declared({"pid": {"target": 50, "kp": 1, "ki": 0.05}})
    loops = dict(decided(before, 5, 80).loops)
    tuned = retuned(after, before, loops)
    assert tuned["m0"].output == loops["m0"].output
    assert tuned["m0"].integral != loops["m0"].integral
    assert retuned(declared(LAWS[0]), before, loops) == {}


finite = st.floats(-1e6, 1e6)


@given(st.floats(0, 100), finite, finite, st.lists(st.tuples(st.floats(1e9, 2e9), st.integers(-9, 9)), max_size=3))
def test_what_is_remembered_comes_back_as_it_was(
    output: float, integral: float, slope: float, changes: list[tuple[float, int]]
) -> None:
    outcome = Outcome(
        5, "", None, Scaled(changes=tuple(changes), moved=T0), {"m": Loop(output, integral, slope, 1.0, T0)}
    )
    status = {"replicas": 5, "lastScaleTime": when(T0), "memory": to_memory(outcome, "abc")}
    scaled, loops = from_memory(orjson.loads(orjson.dumps(status)))
    assert (scaled.moved, scaled.seen) == (T0, 5)
    assert [by for _, by in scaled.changes] == [by for _, by in changes]
    assert [at for at, _ in scaled.changes] == pytest.approx([at for at, _ in changes], abs=0.001)
    assert loops["m"].integral == pytest.approx(integral, rel=1e-5)
    assert loops["m"].at == T0


@pytest.mark.parametrize(
    "memory",
    [
        "text",
        {"changes": 5},
        {"loops": {"m": {"output": "many"}}},
        {"loops": {"m": {"colour": 1}}},
        {"changes": [["a"]]},
    ],
)
def test_a_memory_that_makes_no_sense_is_none(memory: Any) -> None:
    assert from_memory({"replicas": 5, "memory": memory}) == (Scaled(), {})


@given(
    st.sampled_from(LAWS),
    st.lists(st.tuples(st.floats(0.5, 90), st.one_of(st.none(), st.floats())), max_size=30),
    st.integers(0, 30),
)
def test_whatever_comes_in_the_limits_hold(
    law: dict[str, Any], readings: list[tuple[float, float | None]], current: int
) -> None:
    spec, scaled, loops, now = declared(law, minReplicas=2), Scaled(), {}, T0
    for seconds, value in readings:
        now += seconds
        metric: Metric = Unknown("lost") if value is None else Reading(value, now)
        outcome = decide(spec, scaled, loops, [metric], Replicas(current, current), now)
        assert 2 <= outcome.desired <= 20
        scaled, loops, current = outcome.scaled, dict(outcome.loops), outcome.desired
