"""Where nothing fits, moving one pod may make room; where it does not, nothing changes."""

from __future__ import annotations

from tests.gpu.placement.fleets import fleet, pod

from homeostat.gpu.placement import Packer, Placement, Residents, Room, make_room


def full(room: Room, *pods: tuple[float, Placement], cores: int = 1) -> tuple[Packer, Residents]:
    packer, residents = Packer(room), Residents()
    for gpus, at in pods:
        packer.take(pod(cores, 1, gpus), at)
        residents.add(pod(cores, 1, gpus), at)
    return packer, residents


def test_a_fraction_moves_into_a_rest_so_that_a_whole_pod_fits() -> None:
    packer, residents = full(fleet((8, 8, 1, 0), (8, 8, 1, 1)), (0.6, Placement(0, (0,))), (0.3, Placement(1, (0,))))
    insists = pod(1, 1, 1, models=0b10)
    assert packer.place(insists) is None
    move = make_room(packer, residents, insists)
    assert move
    assert (move.who, move.to, move.freed) == (1, Placement(0, (0,)), Placement(1, (0,)))
    assert packer.room.gpus.tolist() == [[100], [0]]
    assert residents.at[1] == Placement(0, (0,))


def test_a_pod_without_gpus_moves_where_it_holds_the_cpu() -> None:
    packer, residents = full(fleet((8, 8, 1, 0), (8, 8, 1, 1)), (0, Placement(0, ())), cores=6)
    move = make_room(packer, residents, pod(4, 1, 1, models=0b01))
    assert move
    assert (move.to.node, move.freed) == (1, Placement(0, (0,)))


def test_nothing_changes_where_no_one_move_helps() -> None:
    packer, residents = full(fleet((8, 8, 1, 0), (8, 8, 1, 0)), (0.6, Placement(0, (0,))), (0.6, Placement(1, (0,))))
    assert make_room(packer, residents, pod(1, 1, 1)) is None
    assert packer.room.gpus.tolist() == [[400], [400]]
    assert residents.at == [Placement(0, (0,)), Placement(1, (0,))]


def test_pods_with_several_gpus_stay() -> None:
    packer, residents = full(fleet((8, 8, 2, 0), (8, 8, 2, 1)), (2, Placement(0, (0, 1))))
    assert make_room(packer, residents, pod(1, 1, 1, models=0b01)) is None
