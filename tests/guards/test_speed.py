"""What deciding costs."""

import time

import pytest

from homeostat.guards import decide
from homeostat.loop.fleet import Cause, Op

from .fleets import ENFORCE, NOW, a_fleet, drift


def cpu_seconds(call, runs=1):
    """Of the thread, so that neighbours do not count; the best of a few."""
    fastest = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(runs):
            call()
        fastest = min(fastest, (time.thread_time() - began) / runs)
    return fastest


def yardstick():
    """What squaring ten thousand numbers takes on this machine at this moment: about 0.4 ms on a quiet one of 2024."""
    return cpu_seconds(lambda: [number * number for number in range(10_000)], runs=20)


@pytest.mark.parametrize("size", [10_000, 100_000], ids=["halted", "flowing"])
@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("change_sets", [0, 1, 10_000])
def test_ten_thousand_open_differences_take_some_fifty_milliseconds(size, op, change_sets):
    fleet = a_fleet(size)
    cause = Cause.INTENT if change_sets else Cause.DRIFT
    for number in range(10_000):
        push = f"push-{number % change_sets}" if change_sets else ""
        drift(fleet, [number], op, cause, change_set=push, domain=f"zone-{number % 3}", target=f"host-{number}")
    assert cpu_seconds(lambda: decide(ENFORCE, fleet, NOW)) < 150 * yardstick()


def test_one_open_difference_takes_some_fifty_microseconds():
    fleet = a_fleet(100)
    drift(fleet, [1])
    assert cpu_seconds(lambda: decide(ENFORCE, fleet, NOW), runs=200) < 0.2 * yardstick()
