"""What every store does. A backend's test module subclasses `StoreConformance` and gives the fixture `open_store`.

`open_store` is an async function that opens the same place each time it is called, so that a test can close and reopen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio

from homeostat.store import (
    Compacted,
    Compare,
    Conflict,
    Delete,
    Entry,
    Event,
    FutureRevision,
    Put,
    Store,
    StoreError,
)

OpenStore = Callable[[], Awaitable[Store]]


async def put(store: Store, key: str, value: bytes = b"v") -> int:
    revision = await store.txn([], [Put(key, value)])
    assert isinstance(revision, int)
    return revision


async def delete(store: Store, key: str) -> int:
    revision = await store.txn([], [Delete(key)])
    assert isinstance(revision, int)
    return revision


def shown(event: Event) -> tuple[str, int, bytes | None, bytes | None, int]:
    return (event.key, event.revision, event.value, event.previous, event.created)


async def everything_since(store: Store, prefix: str, revision: int, limit: int) -> list[Event]:
    """Follows the log to its end in answers of about `limit` events."""
    events: list[Event] = []
    while True:
        found, reached = await store.since(prefix, revision, limit)
        assert reached > revision or reached == store.revision
        events += found
        revision = reached
        if reached == store.revision:
            return events


class Base:
    """The fixture that all parts of the suite share."""

    pytestmark = pytest.mark.asyncio

    @pytest_asyncio.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[Store]:
        store = await open_store()
        yield store
        await store.close()


class Transactions(Base):
    async def test_an_empty_store_is_at_revision_one(self, store: Store) -> None:
        assert (store.revision, store.compacted) == (1, 0)
        assert await store.get("a") is None
        page = await store.range("")
        assert (page.entries, page.revision, page.more, page.remaining) == ([], 1, False, 0)
        assert await store.since("", 1) == ([], 1)

    async def test_all_writes_of_a_transaction_carry_its_revision(self, store: Store) -> None:
        assert await store.txn([], [Put("a", b"1"), Put("b", b"2")]) == 2
        assert (await store.range("")).entries == [Entry("a", b"1", 2, 2), Entry("b", b"2", 2, 2)]
        assert store.revision == 2

    async def test_a_key_remembers_its_creation_until_it_is_deleted(self, store: Store) -> None:
        await put(store, "a")
        await put(store, "a", b"2")
        assert await store.get("a") == Entry("a", b"2", 3, 2)
        await delete(store, "a")
        assert await store.get("a") is None
        await put(store, "a", b"3")
        assert await store.get("a") == Entry("a", b"3", 5, 5)

    async def test_a_comparison_that_fails_writes_nothing_and_shows_what_is_there(self, store: Store) -> None:
        await put(store, "a", b"1")
        outcome = await store.txn([Compare("b", 0), Compare("a", 1)], [Put("a", b"2"), Put("c", b"")])
        assert outcome == Conflict(Compare("a", 1), Entry("a", b"1", 2, 2))
        assert await store.txn([Compare("x", 2)], [Put("a", b"2")]) == Conflict(Compare("x", 2), None)
        assert await store.txn([Compare("a", 0)], [Put("a", b"2")]) == Conflict(Compare("a", 0), Entry("a", b"1", 2, 2))
        assert store.revision == 2
        assert await store.count("") == 1

    async def test_a_comparison_that_holds_lets_the_write_through(self, store: Store) -> None:
        assert await store.txn([Compare("a", 0)], [Put("a", b"1")]) == 2
        assert await store.txn([Compare("a", 2), Compare("b", 0)], [Put("b", b"1")]) == 3
        assert await store.txn([Compare("a", 2)], [Delete("a")]) == 4
        assert await store.txn([Compare("a", 0)], [Put("a", b"1")]) == 5

    async def test_what_changes_nothing_takes_no_revision(self, store: Store) -> None:
        await put(store, "a")
        assert await store.txn([], [Delete("b")]) == 2
        assert await store.txn([Compare("a", 2)], []) == 2
        assert await store.txn([], [Delete("b"), Put("a", b"2")]) == 3
        assert [e.key for e in (await store.since("", 1))[0]] == ["a", "a"]

    async def test_a_key_twice_in_a_transaction_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="more than once"):
            await store.txn([], [Put("a", b"1"), Delete("a")])
        assert store.revision == 1

    async def test_an_empty_key_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="must not be empty"):
            await store.txn([], [Put("", b"1")])

    async def test_half_a_character_in_a_key_is_refused_and_harms_nobody(self, store: Store) -> None:
        bad = asyncio.create_task(store.txn([], [Put("\ud800", b"1")]))
        good = asyncio.create_task(store.txn([], [Put("a", b"1")]))
        with pytest.raises(ValueError, match="surrogates"):
            await bad
        assert await good == 2

    async def test_an_empty_value_is_a_value(self, store: Store) -> None:
        await put(store, "a", b"")
        assert await store.get("a") == Entry("a", b"", 2, 2)
        assert (await store.since("", 1))[0][0].value == b""

    async def test_any_bytes_come_back_as_they_were(self, store: Store) -> None:
        value = bytes(range(256)) * 8000
        await put(store, "a", value)
        assert await store.get("a") == Entry("a", value, 2, 2)

    async def test_a_transaction_may_be_large(self, store: Store) -> None:
        assert await store.txn([], [Put(f"k{n:04}", b"v") for n in range(1500)]) == 2
        assert await store.count("k") == 1500
        events, reached = await store.since("", 1, limit=10)
        assert (len(events), reached) == (1500, 2)

    async def test_of_many_who_create_the_same_key_one_wins(self, store: Store) -> None:
        outcomes = await asyncio.gather(*(store.txn([Compare("a", 0)], [Put("a", b"%d" % n)]) for n in range(20)))
        won = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, int)]
        assert len(won) == 1
        current = await store.get("a")
        assert current is not None
        assert current.value == b"%d" % won[0]
        assert all(o == Conflict(Compare("a", 0), current) for n, o in enumerate(outcomes) if n != won[0])

    async def test_no_increment_is_lost_among_many_writers(self, store: Store) -> None:
        await put(store, "n", b"0")

        async def add() -> None:
            for _ in range(10):
                while True:
                    now = await store.get("n")
                    assert now is not None
                    outcome = await store.txn([Compare("n", now.revision)], [Put("n", b"%d" % (int(now.value) + 1))])
                    if isinstance(outcome, int):
                        break

        await asyncio.gather(*(add() for _ in range(8)))
        final = await store.get("n")
        assert final is not None
        assert final.value == b"80"
        assert store.revision == 82

    async def test_a_writer_that_is_cancelled_does_not_take_others_with_it(self, store: Store) -> None:
        first = asyncio.create_task(store.txn([], [Put("a", b"1")]))
        second = asyncio.create_task(store.txn([], [Put("b", b"1")]))
        await asyncio.sleep(0)
        first.cancel()
        assert await second in (2, 3)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await put(store, "c") == store.revision

    async def test_closing_finishes_what_is_under_way_and_refuses_the_rest(self, open_store: OpenStore) -> None:
        store = await open_store()
        writes = [asyncio.create_task(store.txn([], [Put(f"k{n}", b"v")])) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert [await w for w in writes] == list(range(2, 52))
        await store.close()
        for use in (put(store, "a"), store.get("a"), store.range(""), store.since("", 1), store.compact(1)):
            with pytest.raises(StoreError, match="closed"):
                await use
        again = await open_store()
        assert (again.revision, await again.count("k")) == (51, 50)
        await again.close()


class Reads(Base):
    async def test_a_range_holds_the_keys_with_the_prefix_in_byte_order(self, store: Store) -> None:
        under_a = [
            f"a/{rest}" for rest in ("", "1", "10", "2", "\0", "é", "\ud7ff", "\ue000", "\U0001f600", "\U0010ffff")
        ]
        keys = ["a", *under_a, "a0", "b", "é", "\U0010ffff", "\U0010ffff1"]
        await store.txn([], [Put(key, b"v") for key in reversed(keys)])

        def ordered(prefix: str) -> list[str]:
            return sorted((k for k in keys if k.startswith(prefix)), key=str.encode)

        for prefix in ("", "a", "a/", "a/1", "a/\ud7ff", "\U0010ffff", "zz", "a/\U0010ffff"):
            assert [e.key for e in (await store.range(prefix)).entries] == ordered(prefix), prefix
            assert await store.count(prefix) == len(ordered(prefix))

    async def test_pages_of_one_revision_are_one_snapshot(self, store: Store) -> None:
        await store.txn([], [Put(f"k/{n:02}", b"old") for n in range(25)])
        page = await store.range("k/", limit=10, count=True)
        assert (len(page.entries), page.more, page.remaining, page.revision) == (10, True, 15, 2)
        await store.txn([], [Delete("k/00"), Delete("k/12"), Put("k/13", b"new"), Put("k/131", b"new")])
        second = await store.range("k/", after=page.entries[-1].key, revision=page.revision, limit=10, count=True)
        third = await store.range("k/", after=second.entries[-1].key, revision=page.revision, limit=10, count=True)
        assert (second.remaining, second.more, third.remaining, third.more) == (5, True, 0, False)
        entries = page.entries + second.entries + third.entries
        assert entries == [Entry(f"k/{n:02}", b"old", 2, 2) for n in range(25)]

    async def test_a_limit_that_just_fits_does_not_cut(self, store: Store) -> None:
        await store.txn([], [Put("a", b""), Put("b", b"")])
        page = await store.range("", limit=2, count=True)
        assert (len(page.entries), page.more, page.remaining) == (2, False, 0)

    async def test_after_may_lie_outside_the_prefix(self, store: Store) -> None:
        await store.txn([], [Put("a", b""), Put("b/1", b""), Put("b/2", b""), Put("c", b"")])
        assert [e.key for e in (await store.range("b/", after="a")).entries] == ["b/1", "b/2"]
        assert [e.key for e in (await store.range("b/", after="b/1")).entries] == ["b/2"]
        assert (await store.range("b/", after="bb")).entries == []

    async def test_a_long_range_is_one_snapshot_and_lets_others_run(self, store: Store) -> None:
        for start in range(0, 5000, 1000):
            await store.txn([], [Put(f"k{n:05}", b"old") for n in range(start, start + 1000)])
        revision = store.revision
        reading = asyncio.create_task(store.range("k"))
        writing = [
            asyncio.create_task(store.txn([], [Put(f"k{n:05}", b"new"), Delete(f"k{n + 1:05}")]))
            for n in range(0, 5000, 50)
        ]
        turns = 0
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        page = await reading
        await asyncio.gather(*writing)
        assert turns > 2
        assert len({e.revision for e in page.entries if e.revision > page.revision}) == 0
        assert page.entries == (await store.range("k", revision=page.revision)).entries
        if page.revision == revision:
            assert len(page.entries) == 5000
        assert await store.count("k") == 4900

    async def test_the_past_can_be_read(self, store: Store) -> None:
        await put(store, "a", b"1")
        await store.txn([], [Put("a", b"2"), Put("b", b"1")])
        await delete(store, "a")
        assert await store.get("a", 1) is None
        assert await store.get("a", 2) == Entry("a", b"1", 2, 2)
        assert await store.get("a", 3) == Entry("a", b"2", 3, 2)
        assert await store.get("a", 4) is None
        assert [(await store.range("", revision=r)).entries for r in (1, 2, 3, 4)] == [
            [],
            [Entry("a", b"1", 2, 2)],
            [Entry("a", b"2", 3, 2), Entry("b", b"1", 3, 3)],
            [Entry("b", b"1", 3, 3)],
        ]

    async def test_the_future_cannot(self, store: Store) -> None:
        for read in (store.get("a", 2), store.range("", revision=2), store.since("", 2)):
            with pytest.raises(FutureRevision, match="revision 2 is in the future; the store is at 1"):
                await read

    async def test_a_read_never_shows_what_was_not_announced(self, store: Store) -> None:
        announced = 1

        def deliver(_: Sequence[Event], revision: int) -> None:
            nonlocal announced
            announced = revision

        store.subscribe(deliver)
        writing = asyncio.gather(*(store.txn([], [Put(f"k{n % 7}", b"%d" % n)]) for n in range(300)))
        while not writing.done():
            assert store.revision == announced
            page = await store.range("k")
            assert page.revision <= announced
            assert all(e.revision <= page.revision for e in page.entries)
            one = await store.get("k3")
            assert one is None or one.revision <= store.revision
            await asyncio.sleep(0)
        await writing

    async def test_everything_is_there_after_reopening(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.txn([], [Put("a", b"1"), Put("b", b"1")])
        await store.txn([], [Put("a", b"2"), Delete("b")])
        await store.close()
        again = await open_store()
        assert again.revision == 3
        assert (await again.range("")).entries == [Entry("a", b"2", 3, 2)]
        assert await again.get("b", 2) == Entry("b", b"1", 2, 2)
        assert await put(again, "c") == 4
        await again.close()


class Following(Base):
    async def test_events_say_what_was_and_what_is(self, store: Store) -> None:
        await put(store, "a", b"1")
        await put(store, "a", b"2")
        await delete(store, "a")
        await put(store, "a", b"3")
        events, reached = await store.since("", 1)
        assert reached == 5
        assert [shown(e) for e in events] == [
            ("a", 2, b"1", None, 2),
            ("a", 3, b"2", b"1", 2),
            ("a", 4, None, b"2", 2),
            ("a", 5, b"3", None, 5),
        ]

    async def test_subscribers_hear_of_a_write_before_its_writer_does(self, store: Store) -> None:
        heard: list[tuple[list[str], int]] = []
        end = store.subscribe(lambda events, revision: heard.append(([e.key for e in events], revision)))
        await store.txn([], [Put("b", b""), Put("a", b"")])
        assert heard == [(["b", "a"], 2)]
        end()
        end()
        await put(store, "c")
        assert len(heard) == 1

    async def test_subscribers_hear_everything_once_and_in_order(self, store: Store) -> None:
        heard: list[Event] = []
        reached: list[int] = []

        def deliver(events: Sequence[Event], revision: int) -> None:
            heard.extend(events)
            reached.append(revision)

        store.subscribe(deliver)
        await asyncio.gather(*(store.txn([], [Put(f"k{n % 5}", b"%d" % n), Put(f"l{n}", b"")]) for n in range(100)))
        assert [e.revision for e in heard] == [r for r in range(2, 102) for _ in range(2)]
        assert reached == sorted(set(reached))
        assert reached[-1] == store.revision
        events, _ = await store.since("", 1, 1000)
        assert [shown(e) for e in events] == [shown(e) for e in heard]
        assert events[-1] is heard[-1]  # so that what one watcher made of it serves all

    async def test_a_subscriber_that_fails_does_not_keep_others_from_hearing(self, store: Store) -> None:
        heard: list[int] = []

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        store.subscribe(broken)
        store.subscribe(lambda _, revision: heard.append(revision))
        assert await put(store, "a") == 2
        assert heard == [2]

    async def test_the_log_tells_the_same_as_memory(self, open_store: OpenStore) -> None:
        store = await open_store()
        for n in range(40):
            await store.txn([], [Put(f"a/{n % 3}", b"%d" % n), Put(f"b/{n}", b""), Delete(f"b/{n - 2}")])
        remembered = {p: [shown(e) for e in (await store.since(p, 1))[0]] for p in ("", "a/", "b/1", "zzz")}
        await store.close()
        again = await open_store()
        for prefix, events in remembered.items():
            assert [shown(e) for e in (await again.since(prefix, 1))[0]] == events
            for limit in (1, 7, 1000):
                assert [shown(e) for e in await everything_since(again, prefix, 1, limit)] == events
        await again.close()

    async def test_an_answer_never_ends_inside_a_transaction(self, store: Store) -> None:
        for n in range(10):
            await store.txn([], [Put(f"{c}{n}", b"") for c in "abc"])
        for limit in (1, 2, 3, 4, 7):
            revision = 1
            while revision < store.revision:
                events, reached = await store.since("", revision, limit)
                assert len(events) == 3 * (reached - revision)
                assert len(events) >= limit or reached == store.revision
                revision = reached

    async def test_progress_is_made_where_nothing_matches(self, store: Store) -> None:
        for n in range(5):
            await put(store, f"a{n}")
        assert await store.since("b", 1) == ([], 6)

    async def test_the_log_is_followed_to_its_end_while_it_grows(self, store: Store) -> None:
        writing = asyncio.gather(*(store.txn([], [Put(f"k{n}", b"")]) for n in range(300)))
        events: list[Event] = []
        reached = 1
        while reached < 301:
            found, reached = await store.since("", reached, 10)
            events += found
            await asyncio.sleep(0)
        await writing
        assert [e.revision for e in events] == list(range(2, 302))

    async def test_a_keys_history_is_told_newest_first(self, store: Store) -> None:
        for value in (b"1", b"2"):
            await put(store, "a", value)
            await put(store, "other", value)
        await delete(store, "a")
        assert [shown(e) for e in await store.history("a")] == [
            ("a", 6, None, b"2", 2),
            ("a", 4, b"2", b"1", 2),
            ("a", 2, b"1", None, 2),
        ]
        assert [shown(e) for e in await store.history("a", limit=2)] == [
            ("a", 6, None, b"2", 2),
            ("a", 4, b"2", b"1", 2),
        ]
        assert await store.history("nothing") == []


class Compaction(Base):
    async def test_what_was_overwritten_is_forgotten_and_what_is_stays(self, store: Store) -> None:
        await put(store, "a", b"1")
        await put(store, "a", b"2")
        await put(store, "b", b"1")
        await delete(store, "b")
        await put(store, "a", b"3")
        await store.compact(4)
        assert (store.compacted, store.revision) == (4, 6)
        assert await store.get("a", 4) == Entry("a", b"2", 3, 2)
        assert await store.get("b", 4) == Entry("b", b"1", 4, 4)
        assert await store.get("b", 5) is None
        assert (await store.range("")).entries == [Entry("a", b"3", 6, 2)]
        assert [e.revision for e in await store.history("a")] == [6, 3]

    async def test_older_revisions_give_a_clear_error(self, store: Store) -> None:
        for n in range(5):
            await put(store, f"a{n}")
        await store.compact(4)
        message = "revision 3 has been compacted; the oldest readable revision is 4"
        for read in (store.get("a", 3), store.range("", revision=3), store.since("", 3)):
            with pytest.raises(Compacted, match=message) as caught:
                await read
            assert (caught.value.asked, caught.value.oldest) == (3, 4)

    async def test_whoever_follows_from_the_compacted_revision_misses_nothing(self, open_store: OpenStore) -> None:
        store = await open_store()
        await put(store, "a", b"1")
        await put(store, "a", b"2")
        await put(store, "a", b"3")
        await delete(store, "a")
        await store.compact(3)
        expected = [("a", 4, b"3", b"2", 2), ("a", 5, None, b"3", 2)]
        assert [shown(e) for e in (await store.since("", 3))[0]] == expected
        await store.close()
        again = await open_store()
        assert again.compacted == 3
        assert [shown(e) for e in (await again.since("", 3))[0]] == expected
        with pytest.raises(Compacted):
            await again.since("", 2)
        await again.close()

    async def test_the_revision_does_not_go_back_when_the_newest_change_is_forgotten(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await put(store, "a")
        await delete(store, "a")
        await store.compact(3)
        await store.close()
        again = await open_store()
        assert again.revision == 3
        assert await again.history("a") == []
        assert await put(again, "a") == 4
        assert await again.get("a") == Entry("a", b"v", 4, 4)
        await again.close()

    async def test_it_may_be_asked_for_again_but_not_for_the_future(self, store: Store) -> None:
        await put(store, "a")
        await store.compact(2)
        await store.compact(2)
        await store.compact(1)
        assert store.compacted == 2
        with pytest.raises(FutureRevision):
            await store.compact(3)

    async def test_writers_and_readers_go_on_meanwhile(self, store: Store) -> None:
        for n in range(600):
            await put(store, f"k{n % 10}", b"%d" % n)
        compacting = asyncio.create_task(store.compact(601))
        written = 0
        while not compacting.done():
            await put(store, "meanwhile")
            written += 1
            assert len((await store.range("k")).entries) == 10
        await compacting
        assert written > 1
        assert [e.value for e in (await store.range("k")).entries] == [b"%d" % n for n in range(590, 600)]
        assert [len(await store.history(f"k{n}")) for n in range(10)] == [1] * 10


class StoreConformance(Transactions, Reads, Following, Compaction):
    """All of it."""
