"""A pod goes where least is lost, and somewhere whenever it fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gpu.placement.fleets import MIXED, SHAPES, fleet, pod, trace

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement import Demand, Packer, Placement, Pod, Room
from homeostat.gpu.placement import packer as packing


def learned(room: Room, *pods: tuple[Pod, int]) -> Packer:
    return Packer(room, Demand(each for each, count in pods for _ in range(count)))


def fits(room: Room, pod: Pod) -> bool:
    enough = (room.cpu >= pod.cpu) & (room.memory >= pod.memory)
    if pod.gpus:
        enough &= ((room.gpus >= pod.milli).sum(axis=1) >= pod.gpus) & ((pod.models >> room.model) & 1 == 1)
    return bool(enough.any())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_a_pod_that_fits_somewhere_is_taken_and_no_other(seed: int) -> None:
    room = fleet(*MIXED)
    packer = Packer(room)
    for each in trace(room, 1.3, seed):
        expected = fits(room, each)
        at = packer.place(each)
        packer.demand.observe(each)
        assert (at is not None) == expected
        if at:
            assert len(at.gpus) == each.gpus
            assert each.gpus == 0 or (each.models >> int(room.model[at.node])) & 1


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_kept_up_to_date_is_what_would_be_found_afresh(seed: int) -> None:
    room = fleet(*MIXED)
    kept, placed = Packer(room, Demand(each for each, count in SHAPES for _ in range(count))), []
    random = np.random.default_rng(seed)
    for each in trace(room, 0.8, seed):
        at = kept.place(each)
        if at:
            placed.append((each, at))
        if placed and random.random() < 0.3:
            kept.remove(*placed.pop(int(random.integers(len(placed)))))
    afresh = Packer(Room(room.cpu.copy(), room.memory.copy(), room.gpus.copy(), room.model.copy()), kept.demand)
    afresh.prices = kept.prices  # learned for the sizes that nodes had at first
    for each, _ in SHAPES:
        assert kept.costs(each) == pytest.approx(afresh.costs(each))


def test_removing_a_pod_gives_back_what_it_held() -> None:
    room = fleet((16, 64, 2, 0), (32, 64, 4, 0))
    packer = Packer(room)
    before = [array.copy() for array in (room.cpu, room.memory, room.gpus)]
    for each in (pod(4, 8, 0.5), pod(8, 8, 3), pod(2, 2)):
        at = packer.place(each)
        assert at
        packer.remove(each, at)
    assert all((array == was).all() for array, was in zip((room.cpu, room.memory, room.gpus), before, strict=True))


def test_giving_back_twice_is_noticed() -> None:
    packer = Packer(fleet((16, 64, 2, 0)))
    at = packer.place(pod(1, 1, 1))
    assert at
    packer.remove(pod(1, 1, 1), at)
    with pytest.raises(AssertionError, match="given back twice"):
        packer.remove(pod(1, 1, 1), at)


def test_halves_share_a_device() -> None:
    packer = learned(fleet((64, 64, 4, 0)), (pod(1, 1, 0.47), 10), (pod(1, 1, 1), 10))
    first, second = packer.place(pod(1, 1, 0.47)), packer.place(pod(1, 1, 0.47))
    assert first == second


def test_a_small_pod_goes_into_a_rest_that_nobody_else_wants() -> None:
    packer = learned(fleet((64, 64, 2, 0), (64, 64, 2, 0)), (pod(1, 1, 0.81), 20), (pod(1, 1, 0.16), 2), (pod(1, 1, 0.42), 8))
    large = packer.place(pod(1, 1, 0.81))
    packer.take(pod(1, 1, 0.42), Placement(1, (0,)))  # leaves 0.58, of which 0.42 is awaited
    assert packer.place(pod(1, 1, 0.16)) == large


def test_what_needs_much_cpu_goes_where_cpu_abounds() -> None:
    packer = learned(fleet((24, 128, 2, 0), (104, 512, 2, 0)), (pod(11, 40, 1), 10), (pod(20, 40, 1), 3), (pod(16, 40), 3))
    for each in (pod(20, 40, 1), pod(16, 40)):
        at = packer.place(each)
        assert at
        assert at.node == 1


def test_memory_counts_as_cpu_does() -> None:
    packer = learned(fleet((64, 100, 2, 0), (64, 900, 2, 0)), (pod(4, 48, 1), 10), (pod(4, 90, 1), 3))
    at = packer.place(pod(4, 90, 1))
    assert at
    assert at.node == 1


def test_nodes_stay_whole_for_those_who_ask_for_all_of_them() -> None:
    packer = learned(fleet(*[(96, 512, 8, 0)] * 3), (pod(8, 8, 1), 10), (pod(64, 256, 8), 2))
    assert {at.node for at in (packer.place(pod(8, 8, 1)) for _ in range(8)) if at} == {0}


def test_a_model_that_some_insist_on_is_left_to_them() -> None:
    rare = pod(4, 8, 1, models=0b10)
    packer = learned(fleet((16, 64, 2, 1), (16, 64, 2, 0)), (pod(4, 8, 1), 10), (rare, 5))
    at, insists = packer.place(pod(4, 8, 1)), packer.place(rare)
    assert at
    assert insists
    assert (at.node, insists.node) == (1, 0)


def test_a_device_that_is_not_there_or_lost_takes_nothing() -> None:
    room = Room(np.array([8000]), np.array([8]), np.array([[-1, -5000, 400]]), np.array([0]))
    packer = Packer(room)
    assert packer.place(pod(1, 0, 0.5)) is None
    assert packer.place(pod(1, 0, 0.4)) == Placement(0, (2,))


def test_pods_without_gpus_need_no_model() -> None:
    packer = Packer(fleet((8, 8, 1, 0)))
    assert packer.place(pod(1, 1, models=0b10)) == Placement(0, ())
    assert packer.place(pod(1, 1, 1, models=0b10)) is None


def test_more_kinds_of_requests_than_are_kept_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def places() -> list[Placement | None]:
        room = fleet(*MIXED)
        packer = learned(room, *SHAPES)
        return [packer.place(each) for each in trace(room, 1.1, 7)]

    many = places()
    monkeypatch.setattr(packing, "SHAPES", 3)
    assert places() == many


@pytest.mark.parametrize("bad", [Pod(gpus=2, milli=500), Pod(gpus=1, milli=1500), Pod(gpus=1, milli=0), Pod(cpu=-1)])
def test_what_cannot_be_asked_for_is_refused(bad: Pod) -> None:
    with pytest.raises(ValueError, match="asks for"):
        Packer(fleet((8, 8, 2, 0))).place(bad)


def test_prices_are_learned_with_each_doubling() -> None:
    demand = Demand()
    lessons = [demand.lesson]
    for _ in range(8):
        demand.observe(pod(1, 1, 1))
        lessons.append(demand.lesson)
    assert lessons == [0, 1, 2, 2, 3, 3, 3, 3, 4]


def best_fit(room: Room, pods: list[Pod]) -> int:
    """What is given out if each pod goes to the device, or the node, that is left with least."""
    given = 0
    for each in pods:
        able = (room.cpu >= each.cpu) & (room.memory >= each.memory)
        if each.gpus:
            able &= ((room.gpus >= each.milli).sum(axis=1) >= each.gpus) & ((each.models >> room.model) & 1 == 1)
        if not able.any():
            continue
        left = np.where(room.gpus >= max(each.milli, 1), room.gpus, 2 * WHOLE)
        tightest = left.min(axis=1) * 100 + np.maximum(room.gpus, 0).sum(axis=1)
        node = int(np.where(able, tightest, 10**9).argmin())
        order = left[node].argsort(kind="stable")[: each.gpus]
        room.take(each, Placement(node, tuple(order.tolist())))
        given += each.total
    return given


def test_more_is_given_out_than_by_best_fit_on_any_of_these_days() -> None:
    gains = []
    for seed in range(6):
        room, plain = fleet(*MIXED), fleet(*MIXED)
        total, pods = room.free, trace(room, 1.3, seed)
        packer = Packer(room)
        for each in pods:
            packer.place(each)
            packer.demand.observe(each)
        gains.append((total - room.free - best_fit(plain, pods)) / total)
    assert min(gains) > -0.005
    assert np.mean(gains) > 0.01
