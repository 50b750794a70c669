"""The phases of the loop as spans."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from timeit import repeat

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from homeostat.loop.fleet import Ref
from homeostat.loop.tracing import QUIET, Tracing

from .test_engine import FLEET
from .watched import KIND, eventually, watched


class Spans:
    """What was traced."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str, **attributes: str) -> list[ReadableSpan]:
        wanted = {f"homeostat.{key}": value for key, value in attributes.items()}
        return [span for span in self.all() if span.name == name and wanted.items() <= (span.attributes or {}).items()]

    def path(self, span: ReadableSpan) -> list[str]:
        """Its name after those of all that it lies in."""
        known = {one.context.span_id: one for one in self.all() if one.context is not None}
        names = [span.name]
        while span.parent is not None:
            span = known[span.parent.span_id]
            names.append(span.name)
        return names[::-1]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """An SDK, set up for the process as a user would."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield Spans(exporter)
    provider.shutdown()


async def test_an_action_is_traced_from_the_look_to_the_status(tmp_path: Path, spans: Spans) -> None:
    async with watched(tmp_path) as bench:
        await bench.declare("hall", "red")
        await bench.ready("hall")
        await eventually(lambda: spans.named("reconcile", outcome="done"))
    (acted,) = spans.named("act")
    assert acted.attributes == {
        "homeostat.kind": KIND,
        "homeostat.namespace": "default",
        "homeostat.name": "hall",
        "homeostat.op": "create",
    }
    assert spans.path(acted) == ["reconcile", "act"]
    (verified,) = spans.named("verify")
    assert ["reconcile", "verify", "observe"] in [spans.path(span) for span in spans.named("observe")]
    assert ["reconcile", "observe"] in [spans.path(span) for span in spans.named("observe")]
    assert ["reconcile", "compare"] in [spans.path(span) for span in spans.named("compare")]
    assert ["reconcile", "status"] in [spans.path(span) for span in spans.named("status")]
    assert verified.start_time is not None
    assert acted.end_time is not None
    assert verified.start_time >= acted.end_time
    (whole,) = spans.named("reconcile", outcome="done")
    assert whole.attributes is not None
    assert whole.attributes["homeostat.op"] == "create"
    assert whole.attributes["homeostat.kind"] == KIND
    assert whole.attributes["homeostat.name"] == "hall"


async def test_a_decision_is_traced_with_its_verdict(tmp_path: Path, spans: Spans) -> None:
    async with watched(tmp_path) as bench:
        await bench.full_house(1)
        await eventually(lambda: spans.named("decide", fleet=FLEET))
        attributes = spans.named("decide")[-1].attributes or {}
    assert {"homeostat.allowed", "homeostat.held", "homeostat.halts"} <= attributes.keys()


async def test_what_fails_is_in_the_span_in_which_it_failed(tmp_path: Path, spans: Spans) -> None:
    async with watched(tmp_path) as bench:
        bench.provider.broken["apply"] = "no power"
        await bench.declare("hall", "red")
        await eventually(lambda: spans.named("reconcile", outcome="failed"))
    acted = spans.named("act")[0]
    assert acted.status.status_code is StatusCode.ERROR
    assert "no power" in str(acted.status.description)


async def test_the_change_set_is_told(tmp_path: Path, spans: Spans) -> None:
    async with watched(tmp_path) as bench:
        await bench.lamps.apply(
            {
                "metadata": {"name": "hall", "annotations": {"homeostat.dev/change-set": "push-7"}},
                "spec": {"colour": "red"},
            },
            field_manager="test",
        )
        await eventually(lambda: spans.named("reconcile", change_set="push-7", outcome="done"))


async def test_no_value_of_a_spec_is_traced(tmp_path: Path, spans: Spans) -> None:
    async with watched(tmp_path) as bench:
        await bench.declare("hall", "magenta-secret")
        await bench.ready("hall")
    assert spans.all()
    assert not [span for span in spans.all() if "magenta-secret" in span.to_json()]


def test_a_provider_that_the_process_has_set_is_found() -> None:
    code = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from homeostat.loop.tracing import Tracing
assert not Tracing.configured().phase("observe").__enter__()
trace.set_tracer_provider(TracerProvider())
with Tracing.configured().phase("observe"):
    assert trace.get_current_span().name == "observe"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_without_an_sdk_there_are_no_spans() -> None:
    tracing = Tracing.configured()
    with tracing.phase("observe", Ref("lamps", "", "hall", "1")) as span:
        assert span is None
        assert not trace.get_current_span().get_span_context().is_valid


def test_without_an_sdk_opentelemetry_is_not_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    Tracing.configured()
    assert "opentelemetry.trace" not in sys.modules


def test_without_an_sdk_the_phases_of_a_reconcile_cost_next_to_nothing() -> None:
    ref = Ref("lamps", "", "hall", "1")

    def reconcile() -> None:
        with QUIET.phase("reconcile", kind="lamps", namespace="", name="hall"):
            for name in ("observe", "compare", "act", "verify", "observe", "compare", "status"):
                with QUIET.phase(name, ref):
                    pass
            QUIET.note(op="create", change_set="x", outcome="done")

    seconds = min(repeat(reconcile, number=1000, repeat=5)) / 1000
    assert seconds < 25e-6  # 2.4 µs where nothing else runs; spans that do nothing would be ten times that
