"""Fixed blocks of rows over one thread pool: results never depend on the number of cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")

ROWS_PER_BLOCK = 32
"""One tile of rows.

Partial results are combined in block order, so the block size is part of the arithmetic.
"""
MAX_SERIAL = 2**15
"""Elements up to which one thread works on all rows: others would cost more than they save."""


@cache
def _pool(_pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="rows")


def over_rows(
    function: Callable[[int, int], T],
    rows: int,
    block: int = ROWS_PER_BLOCK,
    *,
    elements: int | None = None,
) -> list[T]:
    """Call `function(start, stop)` for each fixed block of rows, and return the results in order.

    The blocks run on all cores. Must not be called from inside one of its own blocks (the pool
    could wait for itself).

    elements: the number of elements in all rows. Up to MAX_SERIAL, the blocks run one after the
    other in the calling thread.
    """
    spans = [(start, min(start + block, rows)) for start in range(0, rows, block)]
    if len(spans) <= 1 or (elements is not None and elements <= MAX_SERIAL):
        return [function(start, stop) for start, stop in spans]
    return list(_pool(os.getpid()).map(lambda span: function(*span), spans))
