"""The phases of the loop as OpenTelemetry spans: reconcile, and within it observe, compare, act, verify, status; decide for itself.

Only the API of OpenTelemetry is used. Where no SDK is set up there are no spans at all: not even those that do nothing, which
would cost more than much of what they measure.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from homeostat.loop.fleet import Ref

NAME = "homeostat.loop"
PREFIX = "homeostat."
"""Of the attributes: `homeostat.kind`, `homeostat.namespace`, `homeostat.name`, `homeostat.change_set`, `homeostat.op`, …"""

_NONE = nullcontext()


class Tracing:
    """Makes spans with this tracer; makes none without one."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer

    @classmethod
    def configured(cls) -> Tracing:
        """By the tracer provider that the process has set; without spans where it has set none. Ask once, at the start."""
        if "opentelemetry.trace" not in sys.modules and "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ:
            return cls()  # nobody can have set one
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return cls()
        return cls(provider.get_tracer(NAME))

    def phase(self, phase: str, ref: Ref | None = None, /, **more: str | int) -> AbstractContextManager[object]:
        """A span for as long as the block runs, within the one under way. What the block raises is recorded in it.

        Never give it values of a spec or a state: they may be secrets.
        """
        if self._tracer is None:
            return _NONE
        if ref is not None:
            more = {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name, **more}
        return self._tracer.start_as_current_span(
            phase, attributes={PREFIX + key: value for key, value in more.items()}
        )

    def note(self, **more: str | int) -> None:
        """Adds attributes to the span under way."""
        if self._tracer is None:
            return
        from opentelemetry import trace

        trace.get_current_span().set_attributes({PREFIX + key: value for key, value in more.items() if value != ""})


QUIET = Tracing()
"""Makes no spans."""
