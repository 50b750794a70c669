"""Figures of the server itself, in Prometheus text form."""

from __future__ import annotations

from collections.abc import Mapping


class RequestCounts:
    """How many requests were answered, by verb, kind and code. An increment is one dictionary write."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str, int], int] = {}

    def add(self, verb: str, group: str, resource: str, code: int) -> None:
        key = (verb, group, resource, code)
        self.counts[key] = self.counts.get(key, 0) + 1


def render(counts: RequestCounts, gauges: Mapping[str, tuple[str, float]]) -> bytes:
    """`gauges` are values by metric name, each with its help text."""
    lines = [
        "# HELP apiserver_request_total Requests answered, by verb, kind and code.",
        "# TYPE apiserver_request_total counter",
    ]
    for (verb, group, resource, code), count in sorted(counts.counts.items()):
        labels = f'code="{code}",group="{group}",resource="{resource}",verb="{verb}"'
        lines.append(f"apiserver_request_total{{{labels}}} {count}")
    for name, (text, value) in gauges.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value:g}"]
    return ("\n".join(lines) + "\n").encode()
