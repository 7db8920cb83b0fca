"""Fixed blocks of rows over one thread pool: results never depend on the number of cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import cache
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

ROWS_PER_BLOCK = 32
"""One tile of rows.

Partial results are combined in block order, so the block size is part of the arithmetic.
"""
MAX_SERIAL = 2**15
"""Elements up to which one thread works on all rows: others would cost more than they save."""

_name: ContextVar[str] = ContextVar("name", default="rows")
"""The name of the threads that work on blocks of rows."""


@cache
def _pool(_pid: int, name: str = "rows") -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix=name)


def together(first: Callable[[], S], second: Callable[[], T]) -> tuple[S, T]:
    """Call two functions at the same time, and return both results.

    Blocks of rows of `first` have threads of their own: those of `second` would wait for all of
    them, although only some are needed to go on.
    """
    context = copy_context()
    context.run(_name.set, "rows-beside")
    with ThreadPoolExecutor(1) as beside:
        pending = beside.submit(context.run, first)
        result = second()
        return pending.result(), result


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
    return list(in_order(function, rows, block, elements=elements))


def in_order(
    function: Callable[[int, int], T], rows: int, block: int, *, elements: int | None = None
) -> Iterator[T]:
    """Yield the same results one by one, so that the caller need not keep them all."""
    spans = [(start, min(start + block, rows)) for start in range(0, rows, block)]
    if len(spans) <= 1 or (elements is not None and elements <= MAX_SERIAL):
        return iter([function(start, stop) for start, stop in spans])
    return _pool(os.getpid(), _name.get()).map(lambda span: function(*span), spans)
