"""What nobody could place: work that never ends lies where it is, and leaves too little together for what waits.

The judge of a storm wants all work done but this. It goes by what is declared and by the machines that are left, never by what the governor
says of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from homeostat.gpu.kinds import WHOLE, milli

Object = dict[str, Any]


def is_blocked(waiting: Object, running: Iterable[Object], machines: Mapping[str, int], *, tidies: bool) -> bool:
    """Whether one that waits fits nowhere on these machines (GPUs by name), were all gone that ends or may be made to go.

    Of what never ends that is, what `waiting` may take the place of by its priority, and, where GPUs are brought together (`tidies`), what goes on
    anywhere.
    """
    free = dict(machines)
    for obj in running:
        if not _may_go(obj, waiting, tidies=tidies):
            for place in obj["status"].get("assignment") or ():
                if place["node"] in free:
                    free[place["node"]] -= len(place["gpus"])
    spec = waiting["spec"]
    each = Fraction(milli((spec.get("resources") or {}).get("gpus", 1)), WHOLE)
    slots = sum(count // each if each >= 1 else count * (1 // each) for count in free.values())
    return bool(slots < spec.get("replicas", 1))


def _may_go(obj: Object, waiting: Object, *, tidies: bool) -> bool:
    spec, mode = obj["spec"], obj["spec"]["preemption"]["mode"]
    ends = spec["command"][1] != "0" or "maximumRuntime" in spec
    lower = spec["tenant"] == waiting["spec"]["tenant"] and spec["priority"] < waiting["spec"]["priority"]
    return ends or (lower and mode != "Never") or (tidies and mode == "Checkpoint")
