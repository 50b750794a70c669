"""What a simulation runs on: fleets, tenants and policies, from options and files, read by the code that reads the real ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from homeostat.gpu.kinds import GpuPolicySpec
    from homeostat.gpu.simulator import Cluster, Trace

Object = dict[str, Any]

COST_PER_GPU = 2.0
"""An hour, where nobody says."""
PER_RACK = 16
MODEL = "GPU"
"""Of a fleet that nobody describes."""
BUSY = 0.9
"""Such a fleet is as large as it must be for the trace to keep so much of it busy."""
_PART = re.compile(r"(\d{1,6})x(\d{1,2})x([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:@(\d+(?:\.\d+)?))?").fullmatch


def fleet_nodes(text: str) -> list[Object]:
    """From `16x8xH100`, `4x8xH100@3.5,12x4xA100`: machines, GPUs of each, type, and the cost of a GPU hour."""
    found: list[Object] = []
    for part in text.split(","):
        match = _PART(part.strip())
        if match is None or not int(match[1]) or not 1 <= int(match[2]) <= 64:
            raise click.BadParameter(
                f"{part!r} is no fleet: write MACHINESxGPUSxTYPE, such as 16x8xH100 or 4x8xH100@3.5,12x4xA100; "
                "up to 999999 machines with 64 GPUs each"
            )
        found += _nodes(int(match[1]), int(match[2]), match[3], float(match[4] or COST_PER_GPU), len(found))
    return found


def _nodes(count: int, gpus: int, model: str, cost: float, first: int) -> list[Object]:
    return [_node(f"node-{first + at:05}", gpus, model, cost, first + at) for at in range(count)]


def _node(name: str, gpus: int, model: str, cost: float, at: int, **more: Any) -> Object:
    spec = {
        "model": model,
        "gpus": [{"index": index} for index in range(gpus)],
        "costPerHour": cost * gpus,
        "rack": f"rack-{at // PER_RACK}",
    }
    return {"kind": "GpuNode", "metadata": {"name": name}, "spec": {**spec, **more}}


def file_nodes(path: Path) -> list[Object]:
    """From a list of nodes in the format of openb (.csv), or from manifests of GpuNodes, such as `kubectl get gpunodes -o yaml` prints."""
    if path.suffix == ".csv":
        from homeostat.gpu.simulator.trace import rows_of

        rows = rows_of(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
        read = [
            (row.name("sn"), row.whole("gpu"), row.text("model"), row.whole("cpu_milli"), row.whole("memory_mib"))
            for row in rows
        ]
        return [
            _node(name, gpus, model, COST_PER_GPU, at, cpuMilli=cpu, memoryMib=memory)
            for at, (name, gpus, model, cpu, memory) in enumerate(read)
            if gpus
        ]
    return manifests(path, "GpuNode")


def manifests(path: Path, kind: str) -> list[Object]:
    """The objects of a kind in a file. Whatever does not fit the kind is told with its field; without any, that is said."""
    from homeostat.cli.manifests import read
    from homeostat.gpu.kinds import NODE, TENANT
    from homeostat.model.kinds import InvalidSpec, decode

    found = [document for document in read([str(path)]) if document.kind == kind]
    if not found:
        raise click.ClickException(f"{path}: no {kind} is in it")
    form: Any = {"GpuNode": NODE, "Tenant": TENANT}[kind].spec
    for document in found:
        try:
            decode(form, document.obj.get("spec") or {})
        except InvalidSpec as error:
            raise click.ClickException(f"{document.source}: {kind} {document.name}: {error}") from None
    return [{**document.obj, "status": {}} for document in found]


def sized_for(trace: Trace) -> list[Object]:
    """A fleet of machines with 8 GPUs, for each type that the trace names, that it would keep nine tenths busy; large enough for its largest job."""
    from homeostat.gpu.kinds import WHOLE

    length = max((job.submitted for job in trace.jobs), default=0.0) or 1.0
    work: dict[str, float] = {}
    largest: dict[str, float] = {}
    for job in trace.jobs:
        model = job.models[0] if job.models else MODEL
        work[model] = work.get(model, 0.0) + job.duration * job.total / WHOLE
        largest[model] = max(largest.get(model, 0.0), job.total / WHOLE)
    found: list[Object] = []
    for model in sorted(work):
        count = int(max(work[model] / length / BUSY, largest[model]) / 8) + 1
        found += _nodes(count, 8, model, COST_PER_GPU, len(found))
    return found


def even_tenants(names: Sequence[str], nodes: Iterable[Object], max_wait: int | None) -> list[Object]:
    """Each has an equal part of the fleet as its quota, and may borrow what the others leave idle."""
    total = sum(len(node["spec"]["gpus"]) for node in nodes) * 1000
    share, rest = divmod(total, max(len(names), 1))
    sla = {"sla": {"maxWait": f"{max_wait}s"}} if max_wait else {}
    return [
        {
            "kind": "Tenant",
            "metadata": {"name": name},
            "spec": {"quotas": [{"model": "*", "nominal": f"{share + (at < rest)}m"}], "cohort": "all", **sla},
        }
        for at, name in enumerate(names)
    ]


def cluster_of(trace: Trace, nodes: list[Object], tenants: list[Object]) -> Cluster:
    """The fleet as the governor reads a real one. Says so where the trace has tenants that nobody declared."""
    from homeostat.gpu.simulator import Cluster
    from homeostat.gpu.snapshot import Snapshot

    declared = {tenant["metadata"]["name"] for tenant in tenants}
    if unknown := [name for name in trace.tenants if name not in declared]:
        import difflib

        near = difflib.get_close_matches(unknown[0], declared, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise click.ClickException(
            f"the trace has jobs of {', '.join(unknown[:5])}{' …' if len(unknown) > 5 else ''}, and no Tenant is declared with that name.{hint}"
        )
    try:
        seen = Snapshot.from_objects([*nodes, *({**one, "kind": "Tenant"} for one in tenants)], 0.0)
    except (LookupError, TypeError, ValueError) as error:
        raise click.ClickException(f"the fleet cannot be read: {error}") from None
    return Cluster(seen.models, seen.nodes, seen.tenants)


def read_policy(path: Path) -> GpuPolicySpec:
    """A GpuPolicy manifest, or its spec alone. A field that there is not is told, with the one that may have been meant."""
    from homeostat.api.schema import validate
    from homeostat.gpu.kinds import GpuPolicySpec
    from homeostat.model.encoding import Malformed, load_all_yaml
    from homeostat.model.kinds import InvalidSpec, decode, schema_of
    from homeostat.model.schema import Schema

    try:
        documents = load_all_yaml(path.read_bytes())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except Malformed as error:
        raise click.ClickException(f"{path}: {error}") from None
    value = documents[0] if len(documents) == 1 else None
    if not isinstance(value, dict) or value.get("kind", "GpuPolicy") != "GpuPolicy":
        raise click.ClickException(f"{path}: one GpuPolicy is expected, or the spec of one")
    spec = value.get("spec") or {} if "kind" in value else value
    schema = schema_of(GpuPolicySpec)
    try:
        _check_fields(spec, schema, "spec")
        policy = decode(GpuPolicySpec, spec)
    except (InvalidSpec, ValueError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    if wrong := validate(Schema(schema), spec, path="spec"):  # what a server would refuse
        raise click.ClickException(f"{path}: {wrong[0]}")
    return policy


def _check_fields(value: Any, schema: Any, place: str) -> None:
    known = schema.get("properties")
    if not isinstance(value, dict) or not known:
        return
    for name, inner in value.items():
        if name not in known:
            import difflib

            near = difflib.get_close_matches(str(name), list(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"{place}.{name}: there is no such field; {hint}")
        _check_fields(inner, known[name], f"{place}.{name}")
