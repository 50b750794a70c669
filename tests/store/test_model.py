"""The store against a model so simple that it must be right: a list of all states there ever were."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from homeostat.store import Compacted, Compare, Conflict, Delete, Entry, Event, FutureRevision, Put, SqliteStore
from homeostat.store.sqlite import Inline
from homeostat.store.sqlite import store as store_module

T = TypeVar("T")

State = dict[str, Entry]
Told = tuple[str, int, bytes | None, bytes | None, int]

keys = st.sampled_from(["a", "a/", "a/1", "a/2", "a/2/x", "a0", "b", "b/1", "é", "\U0010ffff", "\U0010ffffz"])
prefixes = st.sampled_from(["", "a", "a/", "a/2", "b", "c", "é", "\U0010ffff"])
values = st.binary(max_size=40)
writes = st.lists(st.builds(Put, keys, values) | st.builds(Delete, keys), max_size=4, unique_by=lambda w: w.key)
guesses = st.lists(st.tuples(keys, st.booleans()), max_size=2)


def told(event: Event) -> Told:
    return (event.key, event.revision, event.value, event.previous, event.created)


class Model:
    """Every state by revision, and every event."""

    def __init__(self) -> None:
        self.states: list[State] = [{}, {}]  # revision 0 never was, revision 1 is empty
        self.events: list[Told] = []
        self.compacted = 0

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    def txn(self, compares: list[Compare], asked: list[Put | Delete]) -> int | Conflict:
        now = self.states[-1]
        for compare in compares:
            entry = now.get(compare.key)
            if (entry.revision if entry else 0) != compare.revision:
                return Conflict(compare, entry)
        after = dict(now)
        revision = self.revision + 1
        events: list[Told] = []
        for write in asked:
            before = now.get(write.key)
            if isinstance(write, Put):
                created = before.created if before else revision
                after[write.key] = Entry(write.key, write.value, revision, created)
                events.append((write.key, revision, write.value, before.value if before else None, created))
            elif before:
                del after[write.key]
                events.append((write.key, revision, None, before.value, before.created))
        if events:
            self.states.append(after)
            self.events += events
        return self.revision

    def range(self, prefix: str, revision: int) -> list[Entry]:
        state = self.states[revision]
        return [state[key] for key in sorted(state, key=str.encode) if key.startswith(prefix)]

    def since(self, prefix: str, revision: int) -> list[Told]:
        return [e for e in self.events if e[1] > revision and e[0].startswith(prefix)]


@contextmanager
def small_steps() -> Iterator[None]:
    """So that every loop in the store goes round."""
    steps: dict[str, Any] = {
        "CHUNK": 2,
        "COUNT_CHUNK": 2,
        "SWEEP_CHUNK": 2,
        "BATCH_EVENTS": 3,
        "WAL_PAGES": 6,
        "WAL_PAGES_BUSY": 12,
    }
    with patch.multiple(store_module, **steps):
        yield


class StoreMachine(RuleBasedStateMachine):
    @initialize(feed_bytes=st.sampled_from([0, 700, 1 << 20]))
    def start(self, feed_bytes: int) -> None:
        self.steps = small_steps()
        self.steps.__enter__()
        self.loop = asyncio.new_event_loop()
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.feed_bytes = feed_bytes
        self.model = Model()
        self.open()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def open(self) -> None:
        self.heard: list[Told] = []
        self.heard_from = self.model.revision
        self.store = self.run(
            SqliteStore.open(
                self.path, commit_on=Inline(), durable=False, feed_bytes=self.feed_bytes, cache_bytes=1 << 18
            )
        )
        self.store.subscribe(lambda events, _: self.heard.extend(map(told, events)))

    def compares(self, chosen: list[tuple[str, bool]]) -> list[Compare]:
        """Comparisons that hold now, or that are off by a little."""
        now = self.model.states[-1]
        return [Compare(key, (now[key].revision if key in now else 0) + (not right)) for key, right in chosen]

    @rule(chosen=guesses, asked=writes)
    def write(self, chosen: list[tuple[str, bool]], asked: list[Put | Delete]) -> None:
        compares = self.compares(chosen)
        assert self.run(self.store.txn(compares, asked)) == self.model.txn(compares, asked)

    @rule(together=st.lists(st.tuples(guesses, writes), min_size=2, max_size=6))
    def write_at_once(self, together: list[tuple[list[tuple[str, bool]], list[Put | Delete]]]) -> None:
        asked = [(self.compares(chosen), wanted) for chosen, wanted in together]

        async def all_of_them() -> list[int | Conflict]:
            return await asyncio.gather(*(self.store.txn(*one) for one in asked))

        before = self.model.revision
        for outcome, one in zip(self.run(all_of_them()), asked, strict=True):
            last = self.model.revision
            expected = self.model.txn(*one)
            if isinstance(expected, int) and expected == last:  # it changed nothing: any revision of the moment will do
                assert outcome in range(before, before + len(asked) + 1)
            else:
                assert outcome == expected

    @rule(data=st.data(), key=keys)
    def read_one(self, data: st.DataObject, key: str) -> None:
        assert self.run(self.store.get(key)) == self.model.states[-1].get(key)
        revision = data.draw(st.integers(self.model.compacted or 1, self.model.revision))
        assert self.run(self.store.get(key, revision)) == self.model.states[revision].get(key)

    @rule(data=st.data(), prefix=prefixes, limit=st.integers(0, 5))
    def read_pages(self, data: st.DataObject, prefix: str, limit: int) -> None:
        revision = data.draw(st.none() | st.integers(self.model.compacted or 1, self.model.revision))
        expected = self.model.range(prefix, self.model.revision if revision is None else revision)
        entries: list[Entry] = []
        after = ""
        while True:
            page = self.run(self.store.range(prefix, after=after, revision=revision, limit=limit, count=True))
            assert page.revision == (self.model.revision if revision is None else revision)
            entries += page.entries
            assert page.remaining == len(expected) - len(entries) if page.more else page.remaining == 0
            if not page.more:
                break
            assert len(page.entries) == limit
            after = page.entries[-1].key
        assert entries == expected
        assert self.run(self.store.count(prefix)) == len(self.model.range(prefix, self.model.revision))

    @rule(data=st.data(), prefix=prefixes, limit=st.integers(1, 6))
    def follow(self, data: st.DataObject, prefix: str, limit: int) -> None:
        revision = data.draw(st.integers(self.model.compacted, self.model.revision))
        expected = self.model.since(prefix, revision)
        heard: list[Told] = []
        while True:
            events, revision = self.run(self.store.since(prefix, revision, limit))
            heard += map(told, events)
            if revision == self.model.revision:
                break
            assert heard == [e for e in expected if e[1] <= revision]
        assert heard == expected

    @rule(key=keys, limit=st.integers(1, 5))
    def look_back(self, key: str, limit: int) -> None:
        history = [(e.key, e.revision, e.value, e.created) for e in self.run(self.store.history(key, limit))]
        expected = [(k, r, v, c) for k, r, v, _, c in reversed(self.model.events) if k == key]
        kept = [e for e in expected if e[1] > self.model.compacted]
        newest_before = next((e for e in expected if e[1] <= self.model.compacted), None)
        if self.model.compacted and newest_before and newest_before[2] is not None:
            kept.append(newest_before)
        assert history == kept[:limit]

    @precondition(lambda self: self.model.revision > 3)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        revision = data.draw(st.integers(1, self.model.revision))
        self.run(self.store.compact(revision))
        self.model.compacted = max(self.model.compacted, revision)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.open()

    @rule(key=keys)
    def ask_too_much(self, key: str) -> None:
        with pytest.raises(FutureRevision):
            self.run(self.store.get(key, self.model.revision + 1))
        if self.model.compacted > 1:
            with pytest.raises(Compacted):
                self.run(self.store.range(key, revision=self.model.compacted - 1))
            with pytest.raises(Compacted):
                self.run(self.store.since(key, self.model.compacted - 1))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        assert (self.store.revision, self.store.compacted) == (self.model.revision, self.model.compacted)
        assert self.heard == self.model.since("", self.heard_from)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.loop.close()
            shutil.rmtree(self.path)
            self.steps.__exit__(None, None, None)


StoreMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("HOMEOSTAT_EXAMPLES", "100")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTheStoreAndItsModel = StoreMachine.TestCase
