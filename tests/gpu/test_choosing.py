"""Which workloads make way: against trying every set."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from homeostat.gpu.policies.quota import choose

ITEMS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 50), st.sampled_from([250, 500, 1000, 2000, 3000, 8000])), max_size=8
)


@given(items=ITEMS, need=st.integers(1, 20_000))
def test_enough_is_freed_and_nothing_needlessly(items: list[tuple[int, int, int]], need: int) -> None:
    priority, started, size = ([item[field] for item in items] for field in range(3))
    chosen = choose(list(range(len(items))), priority, [float(s) for s in started], size, need)
    freed = sum(size[i] for i in chosen)
    if sum(size) <= need:
        assert sorted(chosen) == list(range(len(items)))
    else:
        assert freed >= need
        assert all(freed - size[i] < need for i in chosen)


@given(items=ITEMS, need=st.integers(1, 20_000))
def test_no_higher_priority_goes_while_lower_ones_suffice(items: list[tuple[int, int, int]], need: int) -> None:
    priority, started, size = ([item[field] for item in items] for field in range(3))
    chosen = choose(list(range(len(items))), priority, [float(s) for s in started], size, need)
    for level in set(priority):
        if sum(size[i] for i in range(len(items)) if priority[i] <= level) >= need:
            assert all(priority[i] <= level for i in chosen)


@given(items=ITEMS, need=st.integers(1, 20_000))
def test_among_equals_the_fewest_gpus_are_lost(items: list[tuple[int, int, int]], need: int) -> None:
    size = [item[2] for item in items]
    chosen = choose(list(range(len(items))), [0] * len(items), [float(item[1]) for item in items], size, need)
    every = chain.from_iterable(combinations(size, count) for count in range(len(size) + 1))
    sums = [sum(some) for some in every]
    assert sum(size[i] for i in chosen) == min((s for s in sums if s >= need), default=sum(size))
