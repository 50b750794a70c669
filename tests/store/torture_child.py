"""Writes as hard as it can until it is killed, and reports each acknowledged transaction on its standard output.

Every transaction writes two keys with the same content, so that half a transaction would show. A line is `writer number
revision`, written in one piece after the store said that the transaction is durable.
"""

from __future__ import annotations

import asyncio
import os
import sys

from homeostat.store import Compare, Delete, Put, SqliteStore


async def writer(store: SqliteStore, name: int) -> None:
    left, right = f"left/{name}", f"right/{name}"
    current = await store.get(left)
    number = int(current.value.split()[0]) if current else 0
    at = current.revision if current else 0
    while True:
        number += 1
        content = b"%d %s" % (number, b"x" * (number * 37 % 3000))
        writes: list[Put | Delete] = [Put(left, content), Put(right, content)]
        if number % 5 == 0:
            writes += [Put(f"log/{name}/{number:06}", content), Delete(f"log/{name}/{number - 50:06}")]
        outcome = await store.txn([Compare(left, at)], writes)
        assert isinstance(outcome, int), outcome
        at = outcome
        os.write(1, b"%d %d %d\n" % (name, number, at))


async def compactor(store: SqliteStore) -> None:
    while True:
        await asyncio.sleep(0.02)
        await store.compact(max(1, store.revision - 100))


async def main() -> None:
    store = await SqliteStore.open(sys.argv[1])
    os.write(1, b"open %d\n" % store.revision)
    await asyncio.gather(compactor(store), *(writer(store, name) for name in range(int(sys.argv[2]))))


asyncio.run(main())
