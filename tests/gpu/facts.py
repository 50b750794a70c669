"""Objects as the API has them, in a line each, and what the governor makes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from homeostat.gpu.decisions import Decision, Memory, Plan
from homeostat.gpu.explain import Why
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import GpuPolicySpec
from homeostat.gpu.snapshot import Snapshot

NOW = 1_800_000_000.0
Object = dict[str, Any]


def stamp(seconds: float) -> str:
    """A time before (negative) or after now."""
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


def tenant(
    name: str, nominal: object = 8, *, model: str = "*", borrowing: object = None, lending: object = None, **spec: Any
) -> Object:
    quota = {"model": model, "nominal": nominal, "borrowingLimit": borrowing, "lendingLimit": lending}
    return {"kind": "Tenant", "metadata": {"name": name}, "spec": {"quotas": [quota], "namespaces": ["team"], **spec}}


def node(
    name: str,
    gpus: int = 8,
    *,
    heard: float = 0.0,
    readings: list[Object] | None = None,
    model: str = "H100",
    **spec: Any,
) -> Object:
    return {
        "kind": "GpuNode",
        "metadata": {"name": name},
        "spec": {"model": model, "gpus": [{"index": i} for i in range(gpus)], **spec},
        "status": {"reportedAt": stamp(heard), "gpus": readings or []},
    }


def workload(
    name: str,
    gpus: object = 1,
    *,
    of: str = "a",
    submitted: float = -60.0,
    on: list[tuple[str, list[int]]] | None = None,
    started: float = -3600.0,
    phase: str = "",
    status: Object | None = None,
    models: list[str] | None = None,
    **spec: Any,
) -> Object:
    """Pending, or running `on` a node and GPUs for each replica."""
    state: Object = {"submittedAt": stamp(min(submitted, started) if on else submitted), **(status or {})}
    if on:
        part = {} if not isinstance(gpus, str) else {"milli": int(float(gpus) * 1000)}
        state["assignment"] = [
            {"replica": i, "node": where, "gpus": list(which), **part} for i, (where, which) in enumerate(on)
        ]
        state["phase"], state["startedAt"] = phase or "Running", stamp(started)
    elif phase:
        state["phase"] = phase
    needs: Object = {"gpus": gpus, "models": models or []}
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": stamp(submitted)},
        "spec": {"tenant": of, "resources": needs, **spec},
        "status": state,
    }


def plan_of(
    *objects: Object, policy: GpuPolicySpec | None = None, memory: Memory | None = None, after: float = 0.0
) -> Plan:
    return decide(Snapshot.from_objects(list(objects), NOW + after), policy, memory)


def named(decisions: list[Decision]) -> list[str]:
    return [decision.name.removeprefix("team/") for decision in decisions]


def why(plan: Plan, name: str) -> Why:
    found = plan.pending.why(f"uid-{name}")
    assert found is not None, f"{name} does not wait"
    return found
