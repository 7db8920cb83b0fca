"""Blocks of rows: fixed spans, results in block order, and nothing that depends on the number of
threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gonogo.judging import expected
from gonogo.judging.inputs import generate, quantise
from gonogo.numerics import blocks
from numeric_cases import KERNELS, Case, spec
from patience import WAIT_S


@pytest.fixture(params=[1, 2, 7])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Replace the process's pool by one of this many threads, for small tensors, too.

    Yield the number.
    """
    monkeypatch.setattr(blocks, "MAX_SERIAL", 0)
    with ThreadPoolExecutor(max_workers=request.param) as pool:
        monkeypatch.setattr(blocks, "_pool", lambda pid, name: pool)
        yield request.param


def test_the_spans_cut_the_rows_into_fixed_blocks() -> None:
    assert blocks.over_rows(lambda start, stop: (start, stop), 70) == [(0, 32), (32, 64), (64, 70)]
    assert blocks.over_rows(lambda start, stop: (start, stop), 5, block=2) == [
        (0, 2),
        (2, 4),
        (4, 5),
    ]
    assert blocks.over_rows(lambda start, stop: (start, stop), 0) == []


def test_a_single_block_runs_in_the_calling_thread() -> None:
    assert blocks.over_rows(lambda start, stop: threading.get_ident(), 32) == [
        threading.get_ident()
    ]


def test_results_come_in_block_order_even_when_the_first_block_ends_last(threads: int) -> None:
    others = threading.Event()

    def block(start: int, stop: int) -> int:
        if start == 0 and threads > 1:
            assert others.wait(timeout=WAIT_S)
        if start == 32:
            others.set()
        return start

    assert blocks.over_rows(block, 128) == [0, 32, 64, 96]


def test_an_error_in_a_block_reaches_the_caller() -> None:
    def block(start: int, stop: int) -> None:
        if start == 64:
            raise ValueError(f"rows {start} to {stop}")

    with pytest.raises(ValueError, match="rows 64 to 96"):
        blocks.over_rows(block, 96)


def test_the_pool_belongs_to_the_process() -> None:
    assert blocks._pool(os.getpid()) is blocks._pool(os.getpid())
    assert blocks._pool(os.getpid()) is not blocks._pool(
        -1
    )  # a forked child, whose parent's threads don't exist in it


def test_two_functions_run_together_with_threads_of_their_own_for_their_blocks() -> None:
    first_runs, second_runs = threading.Event(), threading.Event()

    def names(running: threading.Event, other: threading.Event) -> set[str]:
        running.set()
        assert other.wait(timeout=WAIT_S)
        threads = blocks.over_rows(lambda start, stop: threading.current_thread().name, 96)
        return {name.rpartition("_")[0] for name in threads}

    results = blocks.together(
        lambda: names(first_runs, second_runs), lambda: names(second_runs, first_runs)
    )
    assert results == ({"rows-beside"}, {"rows"})


def test_what_runs_beside_has_the_caller_s_handling_of_floating_point_errors() -> None:
    with np.errstate(invalid="ignore"):
        nothing, _ = blocks.together(lambda: np.array([np.inf]) - np.inf, lambda: None)
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("place", [0, 1])
def test_an_error_of_either_function_reaches_the_caller(place: int) -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    functions: list[Callable[[], None]] = [lambda: None, lambda: None]
    functions[place] = wrong
    with pytest.raises(ValueError, match="wrong"):
        blocks.together(*functions)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_statistics_do_not_depend_on_the_number_of_threads(threads: int, kernel: str) -> None:
    test = spec(kernel, (150, 97), tolerance={"rtol": 1e-3, "atol": 0.5})

    def statistics() -> tuple[dict[str, Any], dict[str, bytes]]:
        raw = generate(test, 0)
        case = Case(test, 0, raw, quantise(test, raw))
        outputs = case.matrices(case.emulated("rstd-off-1e-3"))
        results = expected.statistics(test, case.raw, case.given, outputs, "tt-train")
        return results, {name: output.tobytes() for name, output in outputs.items()}

    repeats = [statistics() for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(max_workers=1) as alone:
        patch.setattr(blocks, "_pool", lambda pid, name: alone)
        serial = statistics()
    assert all(repeat == serial for repeat in repeats)  # to the last bit


def test_blocks_of_few_elements_run_in_the_thread_that_asks() -> None:
    def thread(start: int, stop: int) -> tuple[int, int, bool]:
        return start, stop, threading.current_thread() is here

    here = threading.current_thread()
    few, many = (
        blocks.over_rows(thread, 70, 32, elements=elements)
        for elements in (blocks.MAX_SERIAL, blocks.MAX_SERIAL + 1)
    )
    assert few == [(0, 32, True), (32, 64, True), (64, 70, True)]
    assert many == [(0, 32, False), (32, 64, False), (64, 70, False)]
