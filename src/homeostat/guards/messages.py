"""What is sent when people are told: one JSON document for any receiver, or what Alertmanager's API takes.

The document is stable: `version` changes when a field changes its meaning or goes; new fields may come at any time. `text` says all of
it in one line, which is what chat systems show.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from homeostat.guards.alerts import Line, State
from homeostat.guards.policy import AlertOn
from homeostat.loop.events import masked
from homeostat.model.clock import format_time

VERSION = "homeostat.dev/alert/v1"
ALERTMANAGER = "/api/v2/alerts"
SIGNATURE = "Homeostat-Signature"
LASTS_SECONDS = 900.0
"""How long Alertmanager keeps an alert beyond the time at which it is told again."""
_CRITICAL = frozenset((AlertOn.HALT,))


def document(line: Line, state: State, policies: Sequence[str], now: float) -> dict[str, Any]:
    """One situation, for any receiver. Its `id` is the same from the first word to the last."""
    one = line.situation
    found = {
        "version": VERSION,
        "id": identity(line),
        "state": str(state),
        "on": str(one.on),
        "severity": severity(one.on),
        "fleet": line.fleet,
        "policies": list(policies),
        "guard": one.guard,
        "reason": masked(one.reason),
        "since": format_time(one.since),
        "sent": format_time(now),
        "plan": one.plan,
        "changeSet": one.change_set,
        "whatToDo": one.what_to_do,
        "commands": list(one.commands),
        "resources": list(one.resources),
        "count": one.count,
        "text": text(line, state),
    }
    return found | ({"ended": format_time(line.ended)} if line.ended else {})


def text(line: Line, state: State) -> str:
    """All of it in one line."""
    one = line.situation
    if state is State.RESOLVED:
        return f"Resolved: {line.fleet}: {one.on} by {one.guard} is over ({masked(one.reason)})"
    begin = {State.REMINDER: "Still: ", State.UPDATED: "Changed: "}.get(state, "")
    way_out = f". {one.what_to_do}" if one.what_to_do else ""
    return f"{begin}{line.fleet}: {one.on} by {one.guard} since {format_time(one.since)}: {masked(one.reason)}{way_out}"


def alertmanager(line: Line, state: State, policies: Sequence[str], now: float, remind_after: float) -> dict[str, Any]:
    """One situation as an alert of Alertmanager. It ends there by itself if nobody tells it again in time."""
    one = line.situation
    labels = {
        "alertname": f"Homeostat{one.on}",
        "severity": severity(one.on),
        "fleet": line.fleet,
        "guard": one.guard,
        "about": one.about,
        "policies": ",".join(policies),
    }
    annotations = {
        "summary": text(line, state),
        "description": masked(one.reason),
        "plan": one.plan,
        "what_to_do": one.what_to_do,
        "commands": "\n".join(one.commands),
        "resources": ", ".join(one.resources),
    }
    lasts = (remind_after or 10 * 365 * 86400.0) + LASTS_SECONDS
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": format_time(one.since),
        "endsAt": format_time(line.ended if state is State.RESOLVED else now + lasts),
    }


def identity(line: Line) -> str:
    """The name of one situation of one fleet since one time."""
    one = line.situation
    told_apart = "\0".join((line.fleet, one.about, format_time(one.since)))
    return hashlib.sha256(told_apart.encode()).hexdigest()[:16]


def severity(on: AlertOn) -> str:
    """`critical` where nothing goes on, `warning` else."""
    return "critical" if on in _CRITICAL else "warning"


def signature(key: bytes, body: bytes) -> str:
    """What the header `Homeostat-Signature` has: the receiver computes the same over the body as it came."""
    return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()


def is_alertmanager(url: str) -> bool:
    """Whether the address is that of Alertmanager's API."""
    return urlsplit(url).path.rstrip("/").endswith(ALERTMANAGER)


def host_of(url: str) -> str:
    """Who is behind an address, without what may be a secret in it."""
    return urlsplit(url).netloc.rpartition("@")[2]
