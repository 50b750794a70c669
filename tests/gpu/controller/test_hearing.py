"""Which nodes are heard of, from one look to the next."""

from __future__ import annotations

from typing import Any

from tests.gpu.facts import NOW, Object, node, stamp

from homeostat.client import Answer, Client, Unreachable
from homeostat.client.transport import Headers
from homeostat.gpu.controller.hearing import Hearing
from homeostat.gpu.objects import Reader
from homeostat.model.clock import Clock


class Nowhere:
    """No server is asked here."""

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        raise Unreachable("nobody is there")

    async def close(self) -> None: ...


class Fixed(Clock):
    def now(self) -> float:
        return NOW


def lease(name: str, renewed: float) -> Object:
    return {"kind": "Lease", "metadata": {"name": name}, "spec": {"renewTime": stamp(renewed)}}


def hearing(**heard: float) -> Hearing:
    """One that has just looked, and takes those for lost that were not heard of for 40 s."""
    reader = Reader()
    for name, seconds in heard.items():
        reader.put(node(name))
        reader.put(lease(name, seconds))
    found: Any = Hearing(Client(Nowhere()), Fixed(), reader)
    found.seconds = 40.0
    found.take(reader.snapshot(NOW))
    return found


def test_who_was_lost_and_renews_its_lease_counts_as_heard_of_before_the_next_look() -> None:
    ears = hearing(n1=-50.0, n2=-5.0)
    assert (ears.lost("n1"), ears.lost("n2")) == (True, False)
    count = ears.count
    assert not ears.returns(lease("n1", -45.0))  # somebody else wrote to it
    assert not ears.returns(lease("n2", 0.0))  # which was heard of all the time
    assert not ears.returns(None)
    assert (ears.lost("n1"), ears.count) == (True, count)
    assert ears.returns(lease("n1", 0.0))
    assert (ears.lost("n1"), ears.count) == (False, count + 1)
    assert not ears.returns(lease("n1", 0.0))
