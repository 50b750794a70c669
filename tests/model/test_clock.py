"""Ids and times: by a seed they repeat, without one they never do."""

from __future__ import annotations

import math
import os
import random
import uuid
from datetime import UTC, datetime

import pytest

from homeostat.model.clock import Ids, format_micro_time, format_time


def test_ids_by_the_same_seed_are_the_same_ones() -> None:
    ids = Ids(random.Random(7))
    assert [ids.uid(), ids.uid()] == ["6513270e-269e-4d37-b2a7-4de452e6b438", "d23f0824-128b-4f33-8c5c-7fd0a6a3a450"]
    assert ids.suffix() == "smcrc"


def test_every_id_is_another_random_uuid() -> None:
    ids = [Ids().uid() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    for text in ids:
        read = uuid.UUID(text)
        assert str(read) == text
        assert (read.version, read.variant) == (4, uuid.RFC_4122)


def test_a_process_that_is_forked_gives_other_ids() -> None:
    ids = Ids()
    ids.uid()  # some are at hand
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, ids.uid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() not in {ids.uid() for _ in range(500)}


def test_times_are_shown_to_the_microsecond() -> None:
    assert format_micro_time(1_731_679_200) == "2024-11-15T14:00:00.000000Z"
    assert format_micro_time(1_731_679_200.123456) == "2024-11-15T14:00:00.123456Z"


@pytest.mark.parametrize("seconds", [0, 0.999, -0.001, 1795000000.0, 1795000000.999999, -86400.5])
def test_a_time_is_that_of_the_second_it_is_in(seconds: float) -> None:
    assert format_time(seconds) == datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
