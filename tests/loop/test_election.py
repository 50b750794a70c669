"""Of several loops one keeps a kind at a time: on a real API server, in virtual time, with candidates that die, sleep and get cut off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from homeostat.client import Client, Unreachable
from homeostat.client.transport import Answer, Headers
from homeostat.loop.election import NAMESPACE, PREFIX, TIMING, Candidacy, Election, Timing
from homeostat.model.clock import Clock
from homeostat.sim.house import House
from homeostat.sim.loop import Life, SimLoop
from homeostat.sim.seeds import simulate

T = TypeVar("T")
Object = dict[str, Any]

KIND = "lamps.lamps.test.dev"
DAY = 86400.0


# What is decided


def lease(holder: str, *, renewed: str = "2026-01-01T00:00:00.000000Z", seconds: int = 15, changes: int = 3) -> Object:
    spec = {"leaseDurationSeconds": seconds, "renewTime": renewed, "acquireTime": renewed, "leaseTransitions": changes}
    return {"metadata": {"name": "a"}, "spec": {"holderIdentity": holder, **spec} if holder else spec}


def test_a_lease_that_is_not_there_is_made() -> None:
    one = Candidacy("one")
    one.saw(None, 100.0)
    assert one.wish(100.0, 0.0) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:00:00.000000Z",
        "renewTime": "1970-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }


def test_to_wish_is_not_yet_to_hold() -> None:
    one = Candidacy("one")
    one.saw(None, 100.0)
    one.wish(100.0, 0.0)
    assert not one.leads(100.0)


def test_who_renews_keeps_since_when_it_holds() -> None:
    one = Candidacy("one")
    one.saw(lease("one"), 100.0)
    wish = one.wish(100.0, 5.0)
    assert wish is not None
    assert wish["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert wish["renewTime"] == "1970-01-01T00:00:05.000000Z"
    assert wish["leaseTransitions"] == 3


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
def test_a_holder_counts_as_alive_by_how_long_its_lease_stands_still_here_whatever_its_clock_says(renewed: str) -> None:
    one = Candidacy("one")
    one.saw(lease("two", renewed=renewed), 100.0)
    one.saw(lease("two", renewed=renewed), 114.9)
    assert one.wish(114.9, 0.0) is None
    wish = one.wish(115.0, 0.0)
    assert wish is not None
    assert wish["leaseTransitions"] == 4


def test_a_renewal_that_is_seen_begins_the_count_anew() -> None:
    one = Candidacy("one")
    one.saw(lease("two"), 100.0)
    one.saw(lease("two", renewed="2026-01-01T00:00:05.000000Z"), 114.0)
    assert one.wish(128.9, 0.0) is None
    assert one.wish(129.0, 0.0) is not None


def test_the_holder_says_how_long_its_lease_is_good_for() -> None:
    one = Candidacy("one")
    one.saw(lease("two", seconds=60), 100.0)
    assert one.wish(159.9, 0.0) is None
    assert one.wish(160.0, 0.0) is not None


def test_what_was_given_back_is_to_be_had_at_once() -> None:
    one, two = Candidacy("one"), Candidacy("two")
    one.wrote(lease("one"), 100.0)
    two.saw({"metadata": {"name": "a"}, "spec": one.resign(0.0)}, 100.0)
    assert not one.leads(100.0)
    assert two.wish(100.0, 0.0) is not None


def test_a_holder_acts_no_longer_than_to_the_deadline_after_it_asked() -> None:
    one = Candidacy("one")
    one.wrote(lease("one"), 100.0)
    assert one.leads(109.9)
    assert not one.leads(110.0)


def test_a_holder_that_sees_another_in_its_place_stops_at_once() -> None:
    one = Candidacy("one")
    one.wrote(lease("one"), 100.0)
    one.saw(lease("two"), 101.0)
    assert not one.leads(101.0)


def test_times_that_would_let_two_act_are_refused() -> None:
    with pytest.raises(ValueError, match="before it runs out"):
        Timing(lease=10.0, deadline=10.0)
    with pytest.raises(ValueError, match="before the deadline"):
        Timing(renew=12.0)


# Candidates on a server


class Way:
    """A candidate's way to the server, which may be cut, or lose answers."""

    def __init__(self, house: House, user: str) -> None:
        self.cut = False
        self.mute = False
        self.sent: list[str] = []
        self._house = house
        self._user = user

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        if self.cut:
            await asyncio.sleep(1.0)
            raise Unreachable("no way there", sent=False)
        self.sent.append(method)
        answer = await self._house.server.ask(self._user, method, target, headers, body)
        if self.mute:
            await asyncio.sleep(30.0)
            raise Unreachable("no answer came", sent=True)
        return answer

    async def close(self) -> None:
        pass


class Skewed(Clock):
    """A wall clock that is wrong."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wrong: float) -> None:
        super().__init__()
        self._loop, self._wrong = loop, wrong

    def now(self) -> float:
        return 1_700_000_000.0 + self._loop.time() + self._wrong


class Loopish:
    """A loop, as far as elections go: a process that may die, with clocks of its own."""

    def __init__(
        self,
        house: House,
        name: str,
        kinds: tuple[str, ...] = (KIND,),
        wrong: float = 0.0,
        seed: int = 0,
        drift: float = 0.0,
    ) -> None:
        self.name = name
        self.slept = 0.0
        self.way = Way(house, name)
        self.life: Life | None = None
        self.election: Election | None = None
        self._kinds, self._wrong, self._seed, self._drift = kinds, wrong, seed, drift

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        source = random.Random(f"{self.name} {self._seed}")
        client = Client(self.way, source=source)
        clock = Skewed(loop, self._wrong)

        asked = (0.0, 0)

        def elapsed() -> float:
            """Passes a little, with each look at it."""
            nonlocal asked
            asked = (loop.time(), asked[1] + 1 if asked[0] == loop.time() else 0)
            return loop.time() * (1 + self._drift) + asked[1] * 1e-6 + 7 * self._wrong + self.slept

        self.life = Life(self.name)
        self.election = Election(client, self._kinds, self.name, clock=clock, elapsed=elapsed, source=source)
        await self.life.begin(self.election.start(), self.name)

    def die(self) -> None:
        assert self.life is not None
        self.life.end()
        self.election = None

    async def stop(self) -> None:
        assert self.election is not None
        await self.election.stop()
        self.die()

    @property
    def held(self) -> frozenset[str]:
        return self.election.held if self.election is not None else frozenset()


def simulated(work: Callable[[House], Awaitable[T]], seed: int = 1) -> T:
    async def run() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        house = House(seed)
        await house.open()
        try:
            return await work(house)
        finally:
            await loop.bury()
            await house.close()

    result: T = simulate(seed, run)
    return result


async def until(holds: Callable[[], Any], within: float) -> float:
    """Waits until it holds; gives how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not holds():
        assert loop.time() < began + within, f"not within {within} s"
        await asyncio.sleep(0.05)
    return loop.time() - began


@contextmanager
def never_two(*ones: Loopish) -> Iterator[None]:
    """Nobody acts on a kind that another may act on, at any moment."""
    wrong: list[str] = []

    async def watch() -> None:
        while True:
            for kind in frozenset().union(*(one.held for one in ones)):
                holders = [one.name for one in ones if kind in one.held]
                if len(holders) > 1:
                    wrong.append(f"{asyncio.get_running_loop().time()}: {kind} {holders}")
            await asyncio.sleep(0.02)

    task = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        task.cancel()
    assert not wrong, wrong[:5]


def test_the_first_holds_when_start_returns_and_the_second_stands_by(caplog: pytest.LogCaptureFixture) -> None:
    async def work(house: House) -> None:
        one, two = Loopish(house, "one"), Loopish(house, "two")
        with never_two(one, two):
            await one.start()
            assert one.held == {KIND}
            assert one.election is not None
            assert one.election.changed.is_set()
            await two.start()
            await asyncio.sleep(120)
        assert one.held == {KIND}
        assert two.election is not None
        assert two.election.holders == {KIND: "one"}
        assert not two.election.changed.is_set()

    simulated(work)
    assert [record.message for record in caplog.records] == [f"{KIND} is kept by another loop, one; this one stands by"]


@pytest.mark.parametrize("wrong", [0.0, DAY, -DAY], ids=["same clock", "a day ahead", "a day behind"])
def test_who_is_killed_is_succeeded_when_its_lease_has_run_out(wrong: float) -> None:
    async def work(house: House) -> float:
        one, two = Loopish(house, "one"), Loopish(house, "two", wrong=wrong)
        with never_two(one, two):
            await one.start()
            await two.start()
            await asyncio.sleep(60)
            one.die()
            return await until(lambda: two.held, 30)

    took = simulated(work)
    assert TIMING.lease - TIMING.renew - TIMING.retry <= took <= TIMING.lease + 2 * TIMING.retry * 1.2 + 0.1


def test_an_orderly_stop_hands_over_within_one_try() -> None:
    async def work(house: House) -> float:
        one, two = Loopish(house, "one"), Loopish(house, "two")
        await one.start()
        await two.start()
        await asyncio.sleep(60)
        await one.stop()
        return await until(lambda: two.held, 5)

    assert simulated(work) <= TIMING.retry * 1.2 + 0.1


def test_a_holder_that_is_cut_off_stops_before_another_begins_and_stands_by_when_it_is_back() -> None:
    async def work(house: House) -> tuple[float, float]:
        one, two = Loopish(house, "one"), Loopish(house, "two")
        with never_two(one, two):
            await one.start()
            await two.start()
            await asyncio.sleep(61)
            assert one.election is not None
            one.election.changed.clear()
            one.way.cut = True
            stopped = await until(lambda: not one.held, 30)
            assert one.election.changed.is_set()
            began = stopped + await until(lambda: two.held, 30)
            one.way.cut = False
            await asyncio.sleep(60)
            assert two.held == {KIND}
            assert one.election.holders == {KIND: "two"}
        return stopped, began

    stopped, began = simulated(work)
    assert stopped <= TIMING.deadline + 0.1
    assert began >= stopped + (TIMING.lease - TIMING.deadline) - 0.2


def test_a_holder_whose_answers_get_lost_stops_too_and_goes_on_when_they_come_again() -> None:
    async def work(house: House) -> None:
        one, two = Loopish(house, "one"), Loopish(house, "two")
        with never_two(one, two):
            await one.start()
            await two.start()
            await asyncio.sleep(61)
            one.way.mute = True
            await until(lambda: not one.held, 12)
            one.way.mute = False
            await until(lambda: one.held, 6)
            assert not two.held

    simulated(work)


def test_a_machine_that_slept_holds_nothing_when_it_wakes() -> None:
    async def work(house: House) -> None:
        one = Loopish(house, "one")
        await one.start()
        one.slept += 3600
        assert one.election is not None
        assert not one.election.holds([KIND])

    simulated(work)


def test_who_is_started_again_under_its_own_name_waits_for_nobody() -> None:
    async def work(house: House) -> None:
        one, two = Loopish(house, "one"), Loopish(house, "two")
        await one.start()
        await two.start()
        await asyncio.sleep(30)
        one.die()
        await one.start()
        assert one.held == {KIND}
        await asyncio.sleep(30)
        assert one.held == {KIND}

    simulated(work)


def test_each_kind_is_held_for_itself() -> None:
    async def work(house: House) -> None:
        one, two = (
            Loopish(house, "one", ("a.test.dev", "b.test.dev")),
            Loopish(house, "two", ("b.test.dev", "c.test.dev")),
        )
        with never_two(one, two):
            await one.start()
            await two.start()
            await asyncio.sleep(30)
            assert one.held == {"a.test.dev", "b.test.dev"}
            assert two.held == {"c.test.dev"}
            one.die()
            await until(lambda: two.held == {"b.test.dev", "c.test.dev"}, 30)

    simulated(work)


def test_a_lease_that_somebody_edits_or_deletes_is_had_again() -> None:
    async def work(house: House) -> None:
        one = Loopish(house, "one")
        await one.start()
        leases = house.people.kind("coordination.k8s.io/v1", "Lease", namespace=NAMESPACE)
        await leases.patch(PREFIX + KIND, {"metadata": {"labels": {"touched": "yes"}}})
        await asyncio.sleep(30)
        assert one.held == {KIND}
        await leases.delete(PREFIX + KIND)
        await asyncio.sleep(30)
        assert one.held == {KIND}

    simulated(work)


@pytest.mark.parametrize("drift", [0.0, 1e-6, -1e-7, -3e-7, -5e-7, -7e-7])
def test_to_hold_costs_one_small_write_each_five_seconds_and_no_read(drift: float) -> None:
    async def work(house: House) -> tuple[list[str], int]:
        one = Loopish(house, "one", drift=drift)
        await one.start()
        one.way.sent.clear()
        before = house.revision
        await asyncio.sleep(600)
        return one.way.sent, house.revision - before

    sent, written = simulated(work)
    assert sent == ["PUT"] * len(sent)
    assert 118 <= len(sent) == written <= 121


def test_the_server_may_be_away_for_a_while_at_the_start() -> None:
    async def work(house: House) -> None:
        one = Loopish(house, "one")
        one.way.cut = True
        await one.start()
        assert not one.held
        one.way.cut = False
        await until(lambda: one.held, 6)

    simulated(work)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_never_two_and_in_the_end_one(seed: int) -> None:
    async def work(house: House) -> None:
        chance = random.Random(f"trouble {seed}")
        ones = [Loopish(house, name, wrong=chance.uniform(-DAY, DAY), seed=seed) for name in ("one", "two", "three")]
        with never_two(*ones):
            for one in ones:
                await one.start()
            for _ in range(40):
                one = chance.choice(ones)
                match chance.choice(("cut", "mute", "die", "stop", "heal", "heal")):
                    case "cut":
                        one.way.cut = True
                    case "mute":
                        one.way.mute = True
                    case "die" if one.election:
                        one.die()
                    case "stop" if one.election:
                        await one.stop()
                    case _:
                        one.way.cut = one.way.mute = False
                        if one.election is None:
                            await one.start()
                await asyncio.sleep(chance.uniform(0, 15))
            for one in ones:
                one.way.cut = one.way.mute = False
                if one.election is None:
                    await one.start()
            await asyncio.sleep(90)
            assert [len(one.held) for one in ones].count(1) == 1

    simulated(work, seed)


# Before the engine


def test_nothing_is_acted_on_once_the_lease_may_be_anothers() -> None:
    async def work(house: House) -> None:
        await house.start_engine()
        engine = house.engine
        assert engine is not None
        (controller,) = engine.controllers.values()
        ours = False
        controller.may_act = lambda: ours
        await house.things.create({"metadata": {"name": "lamp"}, "spec": {"colour": "red"}})
        await asyncio.sleep(120)
        assert [call.op for call in house.world.calls if call.op != "observe"] == []
        ours = True
        await asyncio.sleep(120)
        assert [call.op for call in house.world.calls if call.op != "observe"]

    simulated(work)
