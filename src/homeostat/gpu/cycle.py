"""One cycle of the governor while it is being thought: the facts, what has been decided so far, and what that leaves free."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np

from homeostat.gpu import experience
from homeostat.gpu.decisions import Constraint, Decision, Memory, Verb
from homeostat.gpu.entitlement import Ledger, columns_of
from homeostat.gpu.fleet import Fleet, Need, Taken
from homeostat.gpu.kinds import WHOLE, GpuPolicySpec, Place, share_text
from homeostat.gpu.snapshot import NONE, Bools, Floats, Health, Ints, Mode, Phase, Snapshot, capacity

DAY, HOUR = 86_400.0, 3_600.0
TRIED_AGAIN_AFTER = HOUR
"""Seconds after which what could not be suspended may be asked to make room again: memory may be free, a driver be mended."""
SUSPENDED_BY = (Mode.SUSPEND, Mode.NEVER)
"""The modes of which a person's word has a workload suspended with its state."""


def gpus(milli: int) -> str:
    """An amount for people: `1 GPU`, `2.5 GPUs`."""
    return f"{share_text(milli)} GPU{'' if milli == WHOLE else 's'}"


def span(seconds: float) -> str:
    """A length of time for people, in its two largest units: `3 h 20 min`."""
    seconds = round(seconds)
    for unit, name, below, lower in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            rest = seconds % unit // below
            return f"{seconds // unit} {name}" + (f" {rest} {lower}" if rest else "")
    return f"{seconds} s"


class Cycle:
    """Mutable, and private to one call of `decide`. Policies read the facts, stop and start workloads through it, and so see each other's decisions."""

    def __init__(self, snapshot: Snapshot, policy: GpuPolicySpec, memory: Memory) -> None:
        self.snapshot, self.policy, self.memory, self.now = snapshot, policy, memory, snapshot.now
        demand, lesson = experience.remember(snapshot, memory)
        self.next = Memory(at=snapshot.now, demand=demand, lesson=lesson)
        self.decisions: list[Decision] = []
        self.spots: dict[int, Taken] = {}
        """Where the workloads go that were admitted in this cycle."""
        self.order: Ints = np.zeros(0, dtype=np.int64)
        """Those that wait, first come first, once they were put in order."""
        self.band: Ints = np.zeros(len(snapshot.workloads), dtype=np.int64)
        self.lead: Ints = np.full(len(snapshot.workloads), NONE)
        """The model that each waiting workload is counted under."""
        self.share: Floats = np.zeros(len(snapshot.tenants))
        """Weighted dominant share, the past counted in; `share_now` without it."""
        self.share_now: Floats = np.zeros(len(snapshot.tenants))
        self.crowding: Floats = np.zeros(len(snapshot.models))
        """By model, from 0 to 1: how much is wanted beyond what there is."""
        self.reserved: dict[int, Taken] = {}
        """Whose GPUs have been cleared, and wait for those who leave."""
        self.misfits: dict[tuple[int, int], float] = {}
        """Shapes that fit nowhere on a model, before anything was given away."""
        self.not_scaled: dict[int, str] = {}
        """Why no node is asked for, for those that wait too long."""
        self.paused: dict[int, float] = {}
        """Of those that were taken back as idle: until when each stays off."""
        self.holding: dict[int, float] = {}
        """For whom nodes are held back, and when they are expected to be free."""
        self.emptied: dict[int, Ints] = {}
        """Of these, those that have waited too long: the nodes that nobody else gets on but what can make way again."""
        self._read_workloads()
        self._read_nodes()
        self._read_use()

    def _read_workloads(self) -> None:
        w, share = self.snapshot.workloads, self.policy.time_sharing
        self.total: Ints = w.replicas * w.milli
        """What each has of GPUs, or wants, in thousandths. What was declared anew since it was placed has what it holds until it is off, and what it
        held where it comes back with its state."""
        self.keeps_state: Bools = (w.phase == Phase.SUSPENDED) & np.isin(w.preemption, SUSPENDED_BY)
        """Off its GPUs, in the memory of the machines where it ran, as far as places are said of it."""
        self.held: Bools = (w.phase != Phase.SUSPENDED) & (w.phase != Phase.PENDING)
        self.leaving: Bools = w.phase == Phase.SUSPENDING
        self.waits: Bools = (w.phase == Phase.PENDING) | (w.phase == Phase.SUSPENDED)
        self.displaced: Bools = np.zeros(len(w), dtype=bool)
        self.displaced[self.find(self.memory.displaced)] = True
        self.unyielding: Bools = np.zeros(len(w), dtype=bool)
        """Runs, and cannot be suspended: it makes room for nobody for now."""
        for at in self.find(self.snapshot.refusals):
            refusal, mode = self.snapshot.refusals[w.uid[at]], w.preemption[at]
            lately = refusal.constraint == Constraint.SUSPENSION and not self.now - refusal.at >= TRIED_AGAIN_AFTER
            self.unyielding[at] = mode in SUSPENDED_BY and w.phase[at] != Phase.SUSPENDING and (refusal.tries > 0 or lately)
        self.unmoved: dict[int, int] = {}
        """By workload that waits: one that would make room for it, and cannot be suspended."""
        self.waited: Floats = np.maximum(self.now - w.since, 0.0)
        """Since its submission, or since it was last taken off."""
        expected = np.minimum(np.maximum(w.ran, 0.0) + share.expected.total_seconds(), share.at_most.total_seconds())
        expected = np.minimum(expected, w.maximum - w.ran)
        self.remaining: Floats = np.maximum(expected, 1.0)
        """Seconds that each is expected to go on: as long again as it has run, and never past its maximum."""
        self.latest: Floats = np.where(np.isfinite(w.maximum), np.maximum(w.maximum - w.ran, 1.0), self.remaining)
        """Seconds after which it is gone at the latest, where that was declared; else what is expected."""
        self.blocked: Bools = np.zeros(len(w), dtype=bool)
        """Waiting, and not to be admitted whatever is free: `constraint` says why."""
        self.spot: Ints = w.spot
        """Whether each goes on spot nodes: what it asks for, and what the cost policy makes of that."""
        self.constraint: dict[int, Constraint] = {}
        self._models: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._choices: dict[tuple[int, int], list[list[int]]] = {}  # of those whose models are all of one quota
        self._homes: dict[int, tuple[int, ...]] = {}
        self.first: Ints = np.searchsorted(self.snapshot.places.workload, np.arange(len(w) + 1))

    def _read_nodes(self) -> None:
        nodes = self.snapshot.nodes
        lease = nodes.patience(self.policy.failure.lease.total_seconds())
        self.capacity = capacity(nodes, len(self.snapshot.models))
        with np.errstate(invalid="ignore"):
            self.silent: Bools = self.now - nodes.heard > lease
            self.alive: Bools = self.now - nodes.heard <= lease
        self.gone = self._read_missing()
        """By workload that is placed where nothing is any more: what is gone, in words."""
        flapping = nodes.flaps >= self.policy.failure.flaps
        self.open: Bools = self.alive & ~nodes.cordoned & ~nodes.drain & ~flapping
        demand = experience.demand_of(self.next.lesson, self.snapshot)
        self.fleet = Fleet(nodes, len(self.snapshot.models), self.open, demand, self.policy.cost.alike)
        costs = np.full(len(self.snapshot.models), np.inf)
        np.minimum.at(costs, nodes.model, nodes.cost / np.maximum((nodes.health < Health.ABSENT).sum(axis=1), 1))
        self.cheapest_first: list[int] = np.lexsort((np.arange(len(costs)), costs)).tolist()

    def _read_missing(self) -> dict[int, str]:
        missing = self.snapshot.missing
        if not len(missing.node):
            return {}
        lives = missing.heard_of(self.now, self.policy.failure.lease.total_seconds())
        declared, found = set(self.snapshot.nodes.name), dict[int, str]()
        for at, node, gpu, heard in zip(missing.workload.tolist(), missing.node, missing.gpu.tolist(), lives.tolist(), strict=True):
            if not heard:
                found.setdefault(at, f"GPU {gpu} of {node} is no more" if node in declared else f"{node} is no more")
        return found

    def _read_use(self) -> None:
        w, places, tenants = self.snapshot.workloads, self.snapshot.places, self.snapshot.tenants
        self.model: Ints = np.full(len(w), NONE)
        """The model that a workload holds, or on which its state lies."""
        self.model[places.workload] = self.snapshot.nodes.model[places.node]
        self.held &= self.model != NONE
        holds = np.bincount(places.workload, weights=places.milli, minlength=len(w)).astype(np.int64)
        self.total = np.where(self.held, holds, self.total)
        self.waits |= (w.phase == Phase.STARTING) & ~self.held
        rows = self.held[places.workload]
        self.fleet.load(places.node[rows], places.gpu[rows], places.milli[rows])
        kept = self.keeps_state[places.workload]
        self.fleet.keep_clear(places.node[kept], places.gpu[kept])
        self._load_hosts(rows)
        self.away = {at for at in set(self.snapshot.missing.workload.tolist()) - self.gone.keys() if self.keeps_state[at]}
        """Whose state lies on a node that nobody declares just now, though its agent lives: it is declared again, and until then nothing is lost."""
        for at in np.flatnonzero(self.keeps_state & (holds > 0) & (holds != self.total)).tolist():
            if at not in self.away and self.home_of(at):  # its processes are as they were, whatever was declared since
                self.total[at] = holds[at]
        self.column: Ints = columns_of(tenants, w.tenant, self.model)
        self.ledger = Ledger(tenants)
        counted = np.flatnonzero(self.held & (self.column != NONE))
        self.ledger.load(w.tenant[counted], self.column[counted], self.total[counted])
        for tenant, name in enumerate(tenants.name if self.snapshot.departing else ()):
            if name in self.snapshot.departing:
                self.ledger.withdraw(tenant)
        for at in np.flatnonzero(self.leaving & (self.column != NONE)).tolist():
            self.ledger.leave(int(w.tenant[at]), int(self.column[at]), int(self.total[at]))

    def _load_hosts(self, rows: Bools) -> None:
        """CPU and memory of the machines: a row for each replica. What is suspended keeps its memory, for its state lies there."""
        w, places = self.snapshot.workloads, self.snapshot.places
        if not (w.cpu.any() or w.memory.any()):
            return
        heads = np.ones(len(places.workload), dtype=bool)
        heads[1:] = (places.workload[1:] != places.workload[:-1]) | (places.replica[1:] != places.replica[:-1])
        np.subtract.at(self.fleet.cpu, places.node[heads & rows], w.cpu[places.workload[heads & rows]])
        np.subtract.at(self.fleet.memory, places.node[heads], w.memory[places.workload[heads]])

    # what is

    @cached_property
    def index(self) -> dict[str, int]:
        """Where each uid is."""
        return {uid: at for at, uid in enumerate(self.snapshot.workloads.uid)}

    def find(self, uids: Collection[str]) -> list[int]:
        """Where these are, as far as they are there."""
        return [self.index[uid] for uid in uids if uid in self.index] if uids else []

    def taken_of(self, at: int) -> Taken:
        """What a workload holds, or held when it was suspended."""
        rows, places = slice(self.first[at], self.first[at + 1]), self.snapshot.places
        return tuple(
            zip(
                places.replica[rows].tolist(),
                places.node[rows].tolist(),
                places.gpu[rows].tolist(),
                places.milli[rows].tolist(),
                strict=True,
            )
        )

    def need_of(self, at: int) -> Need:
        """What a workload asks of the fleet. One that was suspended with its state comes back where that lies, and its memory is there already."""
        return self._need(at, self.home_of(at))

    def _need(self, at: int, home: tuple[int, ...]) -> Need:
        w = self.snapshot.workloads
        return Need(
            len(home) or w.replicas.item(at),
            sum(milli for _, _, _, milli in self.taken_of(at)) // len(home) if home else w.milli.item(at),
            w.gpu_memory.item(at),
            w.cpu.item(at),
            0 if home else w.memory.item(at),
            w.topology.item(at),
            self.spot.item(at),
            home,
            self._home_gpus(at) if home else (),
            bool(w.milli[at] and w.preemption[at] == Mode.SUSPEND),
        )

    def home_of(self, at: int) -> tuple[int, ...]:
        """The node of each replica's state; empty where it can go anywhere. The same for the whole cycle."""
        if not self.keeps_state[at] or self.first[at] == self.first[at + 1]:
            return ()
        if at not in self._homes:
            self._homes[at] = self._find_home(at)
        return self._homes[at]

    def _find_home(self, at: int) -> tuple[int, ...]:
        """The state on a lost node is lost, and that of a GPU that failed comes back to no other. Who could not come back to its own for long
        enough gives it up, unless it can just now."""
        nodes = {replica: node for replica, node, _, _ in self.taken_of(at)}
        home = tuple(nodes[replica] for replica in sorted(nodes))
        failed = self.snapshot.nodes.health >= Health.FAILED
        lost = at in self.gone or any(self.silent[node] or failed[node, gpu] for _, node, gpu, _ in self.taken_of(at))
        if lost or (self.out_of_patience(at) and not self.fleet.fits(self._need(at, home), int(self.model[at]))):
            return ()
        return home

    def out_of_patience(self, at: int) -> bool:
        """Whether suspended work has waited for its GPUs for as long as its state is worth."""
        w, factor = self.snapshot.workloads, self.policy.preemption.start_over_after
        since = self.memory.shut_out.get(w.uid[at])
        return since is not None and self.now - since >= factor * float(w.ran[at])

    def _home_gpus(self, at: int) -> tuple[tuple[int, ...], ...]:
        gpus: dict[int, list[int]] = {}
        for replica, _, gpu, _ in self.taken_of(at):
            gpus.setdefault(replica, []).append(gpu)
        return tuple(tuple(gpus[replica]) for replica in sorted(gpus))

    def models_of(self, at: int) -> list[int]:
        """The models that a workload can have, cheapest first; what is within the quota comes before what must be borrowed."""
        w, tenants = self.snapshot.workloads, self.snapshot.tenants
        tenant, mask, total = w.tenant.item(at), w.models.item(at), self.total.item(at)
        found = self._models.get((tenant, mask))
        if found is None:
            can = [m for m in self.cheapest_first if mask >> m & 1 and self.capacity[m] > 0]
            found = [(m, int(column)) for m in can if (column := tenants.column[tenant, m]) != NONE]
            self._models[tenant, mask] = found
        if len({column for _, column in found}) > 1:
            left = tenants.nominal[tenant] - self.ledger.used[tenant] - total
            found = sorted(found, key=lambda pair: left[pair[1]] < 0)
        return [model for model, _ in found]

    def choices_of(self, at: int) -> list[list[int]]:
        """The same for placement, which finds the cheapest node by itself: what is within the quota, then what must be borrowed."""
        tenant, mask = self.snapshot.workloads.tenant.item(at), self.snapshot.workloads.models.item(at)
        known = self._choices.get((tenant, mask))
        if known is not None:
            return known
        models = self.models_of(at)
        if len({column for _, column in self._models[tenant, mask]}) < 2:
            found = self._choices[tenant, mask] = [models] if models else []
            return found
        left = self.snapshot.tenants.nominal[tenant] - self.ledger.used[tenant] - int(self.total[at])
        own = [model for model in models if left[self.snapshot.tenants.column[tenant, model]] >= 0]
        return [found for found in (own, [model for model in models if model not in own]) if found]

    def may_leave(self, at: int) -> bool:
        """Whether a running workload may be taken off: never before its minimum runtime, unless the policy says so."""
        w = self.snapshot.workloads
        if not self.held[at] or self.leaving[at] or at in self.spots:
            return False
        return bool(self.policy.preemption.past_minimum_runtime or self.now - w.started[at] >= w.minimum[at])

    def growth(self, at: int) -> int:
        """How much more a running workload would hold if it were begun anew, as it was declared since; negative where it would be less."""
        w = self.snapshot.workloads
        return int(w.replicas[at] * w.milli[at] - self.total[at])

    def unload(self, fleet: Fleet, gone: list[int]) -> None:
        """Frees in a what-if all that these hold."""
        if not gone:
            return
        w, places = self.snapshot.workloads, self.snapshot.places
        rows = np.concatenate([np.arange(self.first[at], self.first[at + 1]) for at in gone])
        fleet.load(places.node[rows], places.gpu[rows], -places.milli[rows])
        if w.cpu.any() or w.memory.any():
            heads = rows[
                np.r_[
                    True,
                    (places.workload[rows][1:] != places.workload[rows][:-1])
                    | (places.replica[rows][1:] != places.replica[rows][:-1]),
                ]
            ]
            np.add.at(fleet.cpu, places.node[heads], w.cpu[places.workload[heads]])
            np.add.at(fleet.memory, places.node[heads], w.memory[places.workload[heads]])

    # what is decided

    def say(
        self,
        verb: Verb,
        at: int,
        reason: str,
        constraint: Constraint,
        places: tuple[Place, ...] = (),
        beneficiary: str = "",
        count: int = 1,
    ) -> None:
        """A decision on a workload."""
        w = self.snapshot.workloads
        self.decisions.append(
            Decision(
                verb=verb,
                kind="Workload",
                subject=w.uid[at],
                name=w.name[at],
                reason=reason,
                constraint=constraint,
                places=places,
                beneficiary=beneficiary,
                count=count,
            )
        )

    def say_of(self, verb: Verb, kind: str, name: str, reason: str, constraint: Constraint, count: int = 1) -> None:
        """A decision on a node, a pool or a tenant."""
        self.decisions.append(
            Decision(verb=verb, kind=kind, subject=name, name=name, reason=reason, constraint=constraint, count=count)
        )

    def stop(self, verb: Verb, at: int, reason: str, constraint: Constraint, beneficiary: str = "", count: int = 1) -> None:
        """Takes a workload off its GPUs. They are not free before it is gone."""
        self.say(verb, at, reason, constraint, beneficiary=beneficiary, count=count)
        self.leaving[at] = True
        if self.column[at] != NONE:
            self.ledger.leave(int(self.snapshot.workloads.tenant[at]), int(self.column[at]), int(self.total[at]))

    def keep(self, at: int, reason: str, constraint: Constraint, beneficiary: str = "") -> None:
        """Has one that was to leave its GPUs, maybe for another, run on where it is."""
        self.say(Verb.KEEP, at, reason, constraint, places=self.places_for(self.taken_of(at)), beneficiary=beneficiary)
        self.leaving[at], self.unyielding[at] = False, True
        if self.column[at] != NONE:
            self.ledger.leave(int(self.snapshot.workloads.tenant[at]), int(self.column[at]), -int(self.total[at]))

    def admit(self, at: int, taken: Taken, reason: str, constraint: Constraint) -> None:
        """Gives a waiting workload the places that were taken for it."""
        w = self.snapshot.workloads
        model = int(self.snapshot.nodes.model[taken[0][1]])
        column = int(self.snapshot.tenants.column[w.tenant[at], model])
        assert self.ledger.room(int(w.tenant[at]), column) >= self.total[at], "an admission goes beyond the quota"
        assert len({replica for replica, _, _, _ in taken}) == (len(self.home_of(at)) or w.replicas[at]), "a gang is placed in part"
        self.ledger.take(int(w.tenant[at]), column, int(self.total[at]))
        self.spots[at] = taken
        self.waits[at] = False
        self.model[at], self.column[at] = model, column
        again = w.ran[at] > 0 or self.displaced[at] or w.phase[at] == Phase.SUSPENDED
        self.say(Verb.RESUME if again else Verb.ADMIT, at, reason, constraint, places=self.places_for(taken))

    def displace(self, at: int) -> None:
        """Puts a workload whose node or GPU is gone back among those that wait. What it holds elsewhere is free when it has been stopped there."""
        self.displaced[at] = self.waits[at] = True
        self.held[at] = False
        if self.column[at] != NONE:
            self.ledger.take(int(self.snapshot.workloads.tenant[at]), int(self.column[at]), -int(self.total[at]))
            if self.leaving[at]:
                self.ledger.leave(int(self.snapshot.workloads.tenant[at]), int(self.column[at]), -int(self.total[at]))
        self.leaving[at] = False
        self.total[at] = self.snapshot.workloads.replicas[at] * self.snapshot.workloads.milli[at]

    def block(self, which: Bools | Iterable[int], constraint: Constraint) -> None:
        """Leaves these waiting for a reason that no free GPU changes."""
        found = np.flatnonzero(which).tolist() if isinstance(which, np.ndarray) else list(which)
        self.blocked[found] = True
        for at in found:
            self.constraint.setdefault(at, constraint)

    def places_for(self, taken: Taken) -> tuple[Place, ...]:
        """The same in words that are stored: one entry a replica."""
        grouped: dict[int, tuple[int, list[int], int]] = {}
        for replica, node, gpu, milli in taken:
            grouped.setdefault(replica, (node, [], milli))[1].append(gpu)
        return tuple(
            Place(replica=replica, node=self.snapshot.nodes.name[node], gpus=tuple(found), milli=milli)
            for replica, (node, found, milli) in sorted(grouped.items())
        )

    @cached_property
    def allowed(self) -> Bools:
        """[workloads, models]: what each asks for, its tenant may have, and the fleet has."""
        w, tenants = self.snapshot.workloads, self.snapshot.tenants
        count = len(self.snapshot.models)
        bits = (w.models[:, None] >> np.arange(count)) & 1 if count else np.zeros((len(w), 0), dtype=np.int64)
        if not len(tenants):
            return np.zeros((len(w), count), dtype=bool)
        column = tenants.column[np.maximum(w.tenant, 0)]
        return np.asarray((bits == 1) & (column != NONE) & (w.tenant >= 0)[:, None] & (self.capacity > 0))
