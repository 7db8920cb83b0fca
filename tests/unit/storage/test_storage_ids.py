"""Ids are UUIDv7, strictly increasing; JSON and statistics survive what the databases can't
hold."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import time_machine

from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import (
    decode,
    encode,
    separate,
    storable,
    utcnow,
)


def test_ids_are_uuid7_and_carry_their_time() -> None:
    with time_machine.travel(datetime(2100, 5, 1, tzinfo=UTC), tick=False):
        identifier = ids.new_id()
    assert UUID(identifier).version == 7
    assert UUID(identifier).variant == "specified in RFC 4122"
    assert ids.made_at(identifier) == datetime(2100, 5, 1, tzinfo=UTC)
    ids._last = 0  # the test's clock must not run ahead of the other tests'


def test_ids_increase_within_a_millisecond_from_many_threads_and_when_the_clock_steps_back() -> (
    None
):
    batches: list[list[str]] = []

    def make() -> None:
        batches.append([ids.new_id() for _ in range(5000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(part == sorted(part) for part in batches)
    every = {identifier for part in batches for identifier in part}
    assert len(every) == 20000
    with time_machine.travel(utcnow() - timedelta(hours=1), tick=False):
        assert ids.new_id() > max(every)


def test_floor_is_below_every_id_of_its_moment() -> None:
    before = ids.floor(utcnow())
    identifier = ids.new_id()
    assert before < identifier < ids.floor(utcnow() + timedelta(days=1))


def test_non_finite_statistics_become_null_with_their_kind() -> None:
    values, kinds = separate({"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1.5, "e": None})
    assert values == {"a": None, "b": None, "c": None, "d": 1.5, "e": None}
    assert kinds == {"a": "inf", "b": "-inf", "c": "nan"}
    assert decode(encode({"x": math.nan, "n": 2**53 - 1, "t": "é"})) == {
        "x": None,
        "n": 2**53 - 1,
        "t": "é",
    }


def test_text_of_a_kernel_is_made_storable() -> None:
    assert storable("a\x00b\ud800c") == "a�b?c"
