"""What the governor proposed and nobody carried out did not happen: it is taken out of its memory, and so can be proposed again.

Guards may hold what was proposed for as long as they see fit. Meanwhile it must neither use up the budget of preemptions, nor count as
on its way. While GPUs are reserved for whom it is done it stays proposed, for the governor takes it to be under way. Of a governor that has just
begun nothing is proposed.
"""

from __future__ import annotations

from homeostat.gpu.controller.standing import Wish
from homeostat.gpu.decisions import Memory, Verb


def is_reserved(memory: Memory, wish: Wish) -> bool:
    """Whether the GPUs that it clears are still meant for somebody."""
    return wish.decision.verb is Verb.PREEMPT and wish.decision.beneficiary in memory.reservations


def begin_anew(memory: Memory) -> None:
    """Has room sought anew for those that it was being made for: what was proposed and not carried out before a restart, nobody proposes any more."""
    memory.reservations.clear()


def take_back(memory: Memory, wish: Wish) -> None:
    """Forgets that it was decided."""
    uid, rival = wish.decision.subject, wish.decision.beneficiary
    if wish.at in memory.preempted.get(uid, ()):
        memory.preempted[uid].remove(wish.at)
        memory.preemptions.remove(wish.at)
    if wish.decision.verb is Verb.PREEMPT and rival in memory.rivals.get(uid, ()):
        memory.rivals[uid].remove(rival)
    if wish.decision.verb is Verb.REQUEUE:
        memory.displaced.pop(uid, None)
