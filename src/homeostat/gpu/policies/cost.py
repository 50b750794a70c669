"""Cost: what cannot bear the loss of its node keeps off spot nodes, and part-empty nodes are emptied to give them back.

That work goes on the cheapest node that does is `fleet`'s: spot while there is some, on demand when not. Nodes are emptied only while
nothing waits for GPUs, only if all that runs on them keeps its work when it is moved and fits onto nodes that are in use anyway, and only
where the pool may do with a node less. To move them is `moving`'s, to give them back `backlog`'s.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, gpus
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.fleet import Fleet
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NONE, Bools, Health, Ints, Mode, Phase, Spot

TRIES = 64
"""How many of the emptiest nodes are looked at in a cycle."""


def keep_off_spot(cycle: Cycle) -> None:
    """What may never be preempted, or has no time to lose before its deadline, avoids spot nodes, unless it asks for them."""
    w, slack = cycle.snapshot.workloads, cycle.policy.cost.spot_slack.total_seconds()
    pressed = cycle.now + cycle.latest + slack > w.deadline
    fragile = (w.spot == Spot.ALLOW) & ((w.preemption == Mode.NEVER) | pressed)
    if fragile.any():
        cycle.spot = np.where(fragile, int(Spot.AVOID), w.spot)


def consolidate(cycle: Cycle) -> None:
    """Has the emptiest nodes of pools drained, the dearest of these first, as many as the moves that are allowed at a time suffice for."""
    policy, nodes, pools = cycle.policy.cost, cycle.snapshot.nodes, cycle.snapshot.pools
    if not policy.consolidate or not len(pools) or _waits_for_gpus(cycle):
        return
    places = cycle.snapshot.places
    rows = cycle.held[places.workload]
    held = np.bincount(places.node[rows], weights=places.milli[rows], minlength=len(nodes)).astype(np.int64)
    moves = policy.moves - len(np.unique(places.workload[rows & nodes.drain[places.node]]))
    spare = np.bincount(nodes.pool[(nodes.pool != NONE) & ~nodes.drain], minlength=len(pools)) - pools.minimum
    fleet = cycle.fleet.copy()
    fleet.held_until = np.where((held > 0) & ~nodes.drain, np.inf, -np.inf)  # none is opened for it
    for node in _part_empty(cycle, held)[:TRIES].tolist():
        here = np.unique(places.workload[rows & (places.node == node)])
        if len(here) > moves or spare[nodes.pool[node]] <= 0 or fleet.held_until[node] < 0:
            continue
        if not _keep_their_work(cycle, here):
            continue
        after = _without(cycle, fleet, node, here)
        if after is None:
            continue
        fleet, moves, spare[nodes.pool[node]] = after, moves - len(here), spare[nodes.pool[node]] - 1
        reason = f"{nodes.name[node]} is used for {gpus(int(held[node]))} only, which fit elsewhere: that saves {nodes.cost[node]:g} an hour"
        cycle.say_of(Verb.DRAIN, "GpuNode", nodes.name[node], reason, Constraint.COST)


def _waits_for_gpus(cycle: Cycle) -> bool:
    """Whether anybody waits whom its quota would let in: then what is free is not to be given back."""
    waiting = cycle.order[cycle.waits[cycle.order]]
    tenant = cycle.snapshot.workloads.tenant[waiting]
    column = cycle.snapshot.tenants.column[tenant, cycle.lead[waiting]]
    return bool((cycle.ledger.rooms()[tenant, column] >= cycle.total[waiting]).any())


def _part_empty(cycle: Cycle, held: Ints) -> Ints:
    """Open nodes of pools that are used for little, those that are used least and cost most first."""
    nodes = cycle.snapshot.nodes
    size = (nodes.health < Health.FAILED).sum(axis=1) * WHOLE
    part: Bools = cycle.open & (nodes.pool != NONE) & (held > 0) & (held < size * cycle.policy.cost.emptier_than)
    found = np.flatnonzero(part)
    return np.asarray(found[np.lexsort((found, -nodes.cost[found], held[found] / size[found]))])


def _keep_their_work(cycle: Cycle, here: Ints) -> bool:
    """Whether all of these can be moved and lose nothing by it: they write down their state, it is not tied to the node, and they come back as
    large as they are."""
    w = cycle.snapshot.workloads
    able = (w.phase[here] == Phase.RUNNING) & (w.preemption[here] == Mode.CHECKPOINT)
    return bool(able.all()) and all(cycle.may_leave(at) and not cycle.growth(at) for at in here.tolist())


def _without(cycle: Cycle, fleet: Fleet, node: int, here: Ints) -> Fleet | None:
    """The fleet when all on the node has moved; None where that does not fit. They are placed while they still hold what they have."""
    twin = fleet.copy()
    twin.held_until[node] = -np.inf
    for at in here.tolist():
        if twin.place(cycle.need_of(at), int(cycle.model[at])) is None:
            return None
    return twin
