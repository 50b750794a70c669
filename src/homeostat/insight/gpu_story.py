"""One workload: why it waits, runs or was suspended, by which decision, and what comes next."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Any

from homeostat.gpu.controller.standing import lagging
from homeostat.gpu.cycle import HOUR, gpus
from homeostat.gpu.decisions import Constraint, Decision
from homeostat.gpu.explain import Why
from homeostat.gpu.kinds import WHOLE, milli
from homeostat.gpu.policies.quota import unusable
from homeostat.insight.fleets import hold_of
from homeostat.insight.gpu import Facts, Object, phase_of, title
from homeostat.insight.gpu_view import clock_off, lost_nodes
from homeostat.insight.words import ago, count
from homeostat.model.clock import format_time, parse_time
from homeostat.model.conditions import find_condition

Line = tuple[str, str]
"""What it is about, in a word, and what is said of it. Without a word it goes on with the line before."""
_ENDED = ("Succeeded", "Failed")
_DONE = {
    "admit": "admitted",
    "resume": "resumed",
    "migrate": "moved",
    "keep": "kept",
    "suspend": "suspended",
    "preempt": "preempted",
    "reclaim": "reclaimed",
    "requeue": "lost node",
    "end": "ended",
}
_WAY_OUT = {
    "lent": "what others of its cohort borrowed ends, or makes way when it has run for its minimum; `homeostat gpu quota` shows who borrows",
    "quota": "`homeostat gpu quota {tenant}` shows what {tenant} uses; a larger quota, or the end of enough work of it or of its cohort, lets it start",
    "never quota": "a larger quota of {tenant} or of its cohort for such GPUs, or a higher borrowing limit; or that it asks for less, or for others",
    "never capacity": "more nodes join, or it asks for fewer replicas: `homeostat gpu top` shows what there is",
    "never topology": "more nodes join near each other, or it asks for a wider topology or fewer replicas",
    "budget": "a larger budget, or the next period of it",
    "capacity": "GPUs come free, or a node joins",
    "fragmentation": "GPUs come free on one node; smaller replicas would fit now",
    "topology": "GPUs come free near each other; a wider topology would fit now",
    "type": "a node with such GPUs joins, or it asks for other ones: `homeostat gpu top` shows what there is",
    "tenant": "name a tenant of `homeostat gpu quota` that allows the namespace {namespace}",
    "request": "ask for whole GPUs, or for a fraction of one",
    "stopped": '`kubectl patch workload {name} -n {namespace} --type=merge -p \'{{"spec":{{"suspended":false}}}}\'`',
    "idle": '`kubectl patch workload {name} -n {namespace} --type=merge -p \'{{"spec":{{"idle":{{"mode":"Warn"}}}}}}\'` has it back at once, and only warned',
    "home": "what runs on that node makes way or ends",
    "reservation": "those ahead of it start",
    "observer": "look after the agents of the silent nodes, and their clocks; those that are gone for good: `kubectl delete gpunode NAME`",
}


_WHEN = {Constraint.BUDGET: "when the next period of the budget begins", Constraint.IDLE: "when its pause is over and there is room"}


def find(facts: Facts, wanted: str, sees: Callable[[str], bool] = lambda namespace: True) -> Object:
    """The workload `namespace/name`. LookupError where there is none, with the one that may have been meant; of namespaces that
    somebody does not see, none is named."""
    by_title = {title(obj): obj for obj in facts.workloads.values() if sees(obj["metadata"].get("namespace", ""))}
    if wanted in by_title:
        return by_title[wanted]
    where, _, name = wanted.partition("/")
    by_name = {one.partition("/")[2]: one for one in sorted(by_title, key=lambda one: one.startswith(f"{where}/"))}
    near = [by_name[one] for one in difflib.get_close_matches(name, list(by_name), n=1)]
    hint = f" Did you mean '{near[0]}'?" if near else " `kubectl get workloads -A` lists them."
    raise LookupError(f"there is no workload '{name}' in {where}.{hint}")


class Story:
    """All that is known of one workload, first as data; the lines are made of that."""

    def __init__(self, facts: Facts, obj: Object) -> None:
        self.facts, self.obj = facts, obj
        self.meta, self.spec, self.status = obj["metadata"], obj["spec"], obj.get("status") or {}
        self.uid: str = self.meta["uid"]
        self.phase = phase_of(obj)
        self.why: Why | None = facts.plan.pending.why(self.uid)
        self.next: Decision | None = facts.decision_on(self.uid)
        self.hold = hold_of(obj)
        self.decided: dict[str, Any] | None = self.status.get("decision")

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "workload": title(self.obj),
            "tenant": self.spec["tenant"],
            "phase": self.phase,
            "gpus": self._wants() / WHOLE,
            "assignment": self.status.get("assignment") or [],
            "waits": self._waits(),
            "lastDecision": self._last(),
            "next": None
            if self.next is None
            else {"verb": str(self.next.verb), "reason": self.next.reason, "constraint": str(self.next.constraint)},
            "heldBy": None if self.hold is None else {"guard": self.hold.guard, "reason": self.hold.reason},
            "gpuHours": self.status.get("gpuHours", 0.0),
            "suspensions": self.status.get("suspensions", 0),
        }

    def _wants(self) -> int:
        return int(self.spec.get("replicas", 1)) * milli((self.spec.get("resources") or {}).get("gpus", 1))

    def _waits(self) -> dict[str, Any] | None:
        why = self.why
        if why is None:
            return None
        cycle = self.facts.plan.pending.cycle
        start = why.estimated_start
        return {
            "seconds": round(float(cycle.waited[cycle.index[self.uid]])),
            "constraint": str(why.constraint),
            "reason": why.reason,
            "position": why.position,
            "queue": self.facts.plan.pending.queued,
            "ahead": [{"name": one.name, "tenant": one.tenant, "gpus": one.gpus, "why": one.why} for one in why.ahead],
            "aheadWorkloads": why.ahead_count,
            "aheadGpus": why.ahead_milli / WHOLE,
            "estimatedStart": None if start is None else format_time(start),
            "startsInSeconds": None if start is None else max(round(start - self.facts.now), 0),
            "whatHelps": self._way_out(why),
        }

    def _way_out(self, why: Why) -> str:
        word = "lent" if why.lent else f"never {why.constraint}" if why.never else str(why.constraint)
        if why.constraint is Constraint.HOME and not why.position:
            return ""  # its node is declared again by itself
        said = _WAY_OUT.get(word) or _WAY_OUT.get(why.constraint, "")
        return said.format(tenant=self.spec["tenant"], name=self.meta["name"], namespace=self.meta.get("namespace", ""))

    def _last(self) -> dict[str, Any] | None:
        if not self.decided:
            return None
        other = self.decided.get("beneficiary", "")
        return {**self.decided, "beneficiary": self.facts.name_of(other) if other else ""}

    # For people

    @property
    def headline(self) -> str:
        """Which it is, and how it stands."""
        return f"Workload {title(self.obj)} of {self.spec['tenant']}: {self.phase}"

    def lines(self) -> Iterator[Line]:
        """From how it stands to what comes next."""
        replicas, each = self.spec.get("replicas", 1), (self.spec.get("resources") or {}).get("gpus", 1)
        models = " or ".join((self.spec.get("resources") or {}).get("models") or ()) or "any type"
        priority = self.spec.get("priority", 0)
        yield "wants", f"{gpus(self._wants())} of {models}: {count(replicas, 'replica')} with {each} each, priority {priority}"
        if self.phase in _ENDED:
            yield from self._end()
            return
        yield from self._places()
        yield from self._declared_since()
        yield from self._decision_lines()
        yield from self._waiting_lines()
        yield from self._told_lines()
        yield "next", self._what_comes()

    def _end(self) -> Iterator[Line]:
        if self.status.get("reason"):
            yield "because", self.status["reason"]
        hours, times = self.status.get("gpuHours", 0.0), self.status.get("suspensions", 0)
        yield "used", f"{hours:.3g} GPU hours, suspended {times} times on the way"
        yield "next", "nothing: it has ended"

    def _places(self) -> Iterator[Line]:
        places = self.status.get("assignment") or ()
        if not places:
            return
        where = ", ".join(f"{one['node']} GPU {','.join(map(str, one.get('gpus') or ()))}" for one in places[:4])
        more = f" and {len(places) - 4} more" if len(places) > 4 else ""
        if self.phase == "Suspended" and self._has_state():
            yield "state", f"lies on {where}{more}: it goes on there, where it stopped"
        elif self.phase == "Suspended":
            yield "state", f"lay on {where}{more}: it cannot go on there, and begins anew where there is room"
        else:
            since = f", for {self._since(self.status['startedAt'])}" if self.status.get("startedAt") else ""
            yield "holds", f"{where}{more}{since}"

    def _has_state(self) -> bool:
        """Whether a suspended one can go on where it stopped."""
        cycle = self.facts.plan.pending.cycle
        return self.uid in cycle.index and bool(cycle.home_of(cycle.index[self.uid]))

    def _declared_since(self) -> Iterator[Line]:
        """That it runs as it was declared before, and where its tenant is none."""
        places = self.status.get("assignment") or ()
        held = sum(len(one.get("gpus") or ()) * one.get("milli", WHOLE) for one in places)
        if self.phase == "Suspended" and self._has_state() and held != self._wants():
            yield "but", f"it comes back with {gpus(held)}, as was declared when it began: what it wants now it gets when it is begun anew"
        if self.phase not in ("Starting", "Running"):
            return
        if held and held != self._wants():
            yield "but", f"it holds {gpus(held)}, as was declared when it began, and counts with that: what it wants now it gets when it is next begun"
        if off := clock_off(self.facts, self.uid):
            yield "but", f"{off}: what it holds there is never taken for idle"
        cycle = self.facts.plan.pending.cycle
        stray = self.uid in cycle.snapshot.astray
        if stray or (self.uid in cycle.index and cycle.snapshot.workloads.tenant[cycle.index[self.uid]] < 0):
            nobody = f"{self.spec['tenant']} is no tenant that its namespace may use: what it holds counts in no quota, and it does not start again"
            yield "but", unusable(cycle.snapshot, cycle.index[self.uid]) if stray else nobody

    def _since(self, text: str) -> str:
        return ago(self.facts.now - parse_time(text))

    def _decision_lines(self) -> Iterator[Line]:
        last = self._last()
        if last is None:
            return
        for_what = "" if last["constraint"] == "none" else f", for {last['constraint']}"
        yield _DONE.get(last["verb"], "decided"), f"{self._since(last['at'])} ago{for_what}: {last['reason']}"
        if last["beneficiary"] and last["verb"] != "keep":
            yield "", f"to make room for {last['beneficiary']}"
        if self.phase == "Suspended":
            times = f"suspended {count(self.status.get('suspensions', 0), 'time')} so far"
            hours = self.status.get("gpuHours", 0.0)
            yield "", f"{times}; {hours:.3g} GPU hours are done and kept" if self._has_state() else times

    def _waiting_lines(self) -> Iterator[Line]:
        waits = self._waits()
        if waits is None or self.why is None:
            return
        yield "held back", f"by {waits['constraint']}, for {ago(waits['seconds'])}: {waits['reason']}"
        if waits["position"]:
            yield "position", f"{waits['position']} of {waits['queue']}; {self._those_ahead(self.why)}"
            width = max((len(one["name"]) for one in waits["ahead"]), default=0)
            for one in waits["ahead"]:
                yield "", f"  {one['name']:{width}}  {one['tenant']} wants {one['gpus']}: {one['why']}"
            if waits["aheadWorkloads"] > len(waits["ahead"]):
                yield "", f"  and {waits['aheadWorkloads'] - len(waits['ahead'])} before those"
        if waits["position"] and not self.why.never and (used_up := self._no_more_preemptions()):
            yield "", used_up
        yield "likely", self._likely(waits["startsInSeconds"], self.why)
        if waits["whatHelps"]:
            yield "helps", waits["whatHelps"]

    def _told_lines(self) -> Iterator[Line]:
        """Promises that were not kept, and GPUs that lie idle: as it was said when it was found."""
        kept, idle = (find_condition(self.obj, kind) or {} for kind in ("SlaMet", "Idle"))
        if kept.get("status") == "False":
            yield "missed", f"{self._since(kept['lastTransitionTime'])} ago: {kept.get('message', '')}"
        if idle.get("status") == "True":
            yield "idle", f"{self._since(idle['lastTransitionTime'])} ago: {idle.get('message', '')}"

    def _no_more_preemptions(self) -> str:
        """That nobody is taken off for it now, whatever its priority; empty where somebody may be."""
        policy, used = self.facts.policy.preemption, self.facts.plan.pending.cycle.next.preemptions
        if not policy.enabled or not policy.per_hour or len(used) < policy.per_hour:
            return ""
        again = ago(max(sorted(used)[-policy.per_hour] + HOUR - self.facts.now, 0.0))
        return f"nobody makes way for it for another {again}: {count(len(used), 'preemption')} in the last hour, and the GpuPolicy allows {policy.per_hour}"

    @staticmethod
    def _those_ahead(why: Why) -> str:
        if why.ahead_count:
            return f"{count(why.ahead_count, 'workload')} ahead of it for the same GPUs or quota, with {gpus(why.ahead_milli)}"
        if why.position == 1:
            return "nobody is ahead of it"
        return f"{count(why.position - 1, 'workload')} ahead of it, none for the same GPUs or quota"

    @staticmethod
    def _likely(starts: float | None, why: Why) -> str:
        if why.never:
            return "not as things are: that other work ends would not let it start"
        if starts is None:
            return "nobody can say when"
        near = starts if starts < 600 else round(starts / 60) * 60
        return f"in about {ago(near)}, {_WHEN.get(why.constraint, 'by how long what runs is expected to go on')}"

    def _what_comes(self) -> str:
        if self.facts.halts and (self.next is not None or self._is_cleared_for()):
            meant = self._would() if self.next is not None else "others are to make way for it"
            return f"{meant}, but the guards have halted: {self.facts.halts[0]['reason']}. See `homeostat runbook`"
        if self.hold is not None:
            return f"{self._would()}, but it is held by {self.hold.guard}: {self.hold.reason}. See `homeostat explain workload {self.meta['name']}`"
        if self.next is not None:
            return f"{self._would()}, at the next cycle"
        if self.why is not None and self.why.never:
            nodes = self.why.constraint in (Constraint.TYPE, Constraint.TOPOLOGY, Constraint.CAPACITY)
            return f"{'nothing, until nodes join that it fits on' if nodes else 'nothing, until that is changed'}; every cycle looks again"
        if self.why is not None:
            return "it starts when it is its turn and there is room; every cycle looks again"
        if self.phase == "Pending":
            return f"nothing: what it declares cannot be read. See `homeostat explain workload {self.meta['name']}`"
        if self.phase in ("Starting", "Suspending"):
            lost = lost_nodes(self.facts)
            return lagging(self.status, lost.__contains__) or "its agents have done it, and that is about to be noted"
        return "nothing is planned: it runs on"

    def _is_cleared_for(self) -> bool:
        """Whether GPUs are being cleared for it."""
        cycle = self.facts.plan.pending.cycle
        return cycle.index.get(self.uid) in cycle.reserved

    def _would(self) -> str:
        if self.next is None:
            return "something is to be done"
        return f"the governor wants to {self.next.verb} it ({self.next.constraint}: {self.next.reason})"
