"""The mutations that benchmarks/mutants plants, and how they come into a process."""

from __future__ import annotations

import math
from pathlib import Path
from types import CodeType, ModuleType

import numpy as np
import pytest

from benchmarks.mutants.edges import SeenComparisons, float_edges
from benchmarks.mutants.functions import COMPARER, RECORDER, first_line, put_in_place, recording
from benchmarks.mutants.mutations import mutations
from benchmarks.mutants.trial import MARK, check_folder

SOURCE = '''
LIMIT = 5


def f(x: int | None, log) -> float:
    """Say nothing of 3 + 4."""
    if x is None:
        raise ValueError("é" + str(1 + 2))
    log.info("%d", x + 1)
    words = "é"; return min(x, 2.5) if x < 7 and not log else 0

    class Inner:
        def g(self):
            save(True)
            session.flush()
'''.encode()


def test_each_mutation_changes_one_thing_of_a_function_s_work() -> None:
    """Constants of the module, texts, errors, log lines and annotations stay."""
    assert [(mutation.line, str(mutation)) for mutation in mutations(SOURCE)] == [
        (7, 'if x is None: raise ValueError("é" + str(1 + 2))  ->  pass'),
        (7, "x is None  ->  (x is not None)"),
        (10, "min(x, 2.5)  ->  (max(x, 2.5))"),
        (10, "2.5  ->  (2500.0)"),
        (10, "x < 7  ->  (x <= 7)"),
        (10, "x < 7 and not log  ->  (x < 7 or not log)"),
        (10, "7  ->  (8)"),
        (10, "not log  ->  (log)"),
        (10, "0  ->  (1)"),
        (14, "save(True)  ->  pass"),
        (14, "True  ->  (False)"),
    ]


def test_what_changes_nothing_by_its_nature_is_no_mutation() -> None:
    source = b"def f(x, y):\n    return x * y < 0, max(x, 1e-300), x * y < 3"
    changes = [str(mutation) for mutation in mutations(source)]
    assert changes == [
        "x * y < 0  ->  (x * y <= 0)",
        "0  ->  (1)",
        "max(x, 1e-300)  ->  (min(x, 1e-300))",
        "x * y  ->  (x / y)",
        "x * y < 3  ->  (x * y <= 3)",
        "3  ->  (4)",
    ]


def test_a_mutation_is_exactly_its_own_change() -> None:
    for mutation in mutations(SOURCE):
        changed = mutation.apply(SOURCE)
        compile(changed, "changed", "exec")
        assert changed[: mutation.start] == SOURCE[: mutation.start]
        assert changed.endswith(SOURCE[mutation.end :])


LOADED = b"""
import functools
@functools.cache
def f(x):
    return x + 1
class Inner:
    def g(self):
        def h():
            return 3
        return h()
def k(
    log=lambda: None
):
    return log
"""


def compiled(source: bytes) -> CodeType:
    return compile(source, "loaded.py", "exec")


def test_the_functions_of_a_process_get_the_code_of_a_mutant() -> None:
    right = compiled(LOADED)
    module = ModuleType("loaded")
    exec(right, module.__dict__)
    method = module.Inner().g  # as other modules hold it
    functions = [module.f.__wrapped__, module.Inner.g, compiled]
    outcomes = []
    for mutation in mutations(LOADED):
        assert put_in_place(right, compiled(mutation.apply(LOADED)), functions)
        module.f.cache_clear()
        outcomes.append((module.f(5), method()))
        assert put_in_place(right, right, functions)
    assert outcomes == [(4, 3), (7, 3), (6, 4)]
    assert not put_in_place(right, right, [compiled])
    assert not put_in_place(right, compiled(LOADED + b"def more(): pass"), functions)
    calls = []
    module.__dict__[RECORDER] = lambda *call: calls.append(call)
    assert put_in_place(right, recording("loaded.py", LOADED), functions)
    assert (module.f(6), method()) == (7, 3)
    assert calls == [("loaded.py", 3), ("loaded.py", 7)]


@pytest.mark.parametrize(("line", "first"), [(2, 0), (4, 3), (5, 3), (7, 7), (9, 7), (14, 11)])
def test_a_line_belongs_to_the_outermost_function_around_it(line: int, first: int) -> None:
    assert first_line("loaded.py", LOADED, line) == first


def test_a_copy_is_made_in_no_folder_that_has_something_else(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "new")
    (tmp_path / "work.py").touch()
    with pytest.raises(ValueError, match="neither empty nor an earlier copy"):
        check_folder(tmp_path)
    (tmp_path / MARK).touch()
    check_folder(tmp_path)


@pytest.mark.parametrize(
    ("pairs", "is_edge"),
    [
        ([(math.pi, 3.0), (math.e, 3.0)], True),
        ([(np.array([math.pi, math.nan]), 3.0)], True),
        ([(math.pi, 3.0), (3.0, 3.0)], False),  # equal once: a test reaches the edge
        ([(np.array([math.pi, 3.0]), 3.0)], False),
        ([(0.75, 0.6), (1 / 3, 0.6)], False),  # shares of counts
        ([(3, 2.5), (math.pi, 2.5)], False),  # a count
        ([(0.0, 3.0), (math.pi, 3.0)], True),
        ([(math.pi, 0.0)], False),  # a guard against 0
        ([(math.pi, math.inf)], False),
        ([("a", "b")], False),
        ([], False),  # no test compares
    ],
)
def test_a_float_edge_is_a_comparison_of_measured_numbers_that_are_never_equal(
    pairs: list[tuple[object, object]], is_edge: bool
) -> None:
    source = b"def f(x, y):\n    return [x > y for _ in range(1)], x is y"
    (swap,) = (mutant for mutant in mutations(source) if ">=" in mutant.after)
    module, comparisons = ModuleType("loaded"), SeenComparisons()
    module.__dict__.update({RECORDER: lambda *_: None, COMPARER: comparisons.compare})
    exec(recording("loaded.py", source), module.__dict__)
    for left, right in pairs:
        assert np.all(module.f(left, right)[0][0] == (left > right))  # type: ignore[operator]
    place = ("loaded.py", swap.start, swap.end)
    assert (float_edges(comparisons.seen) == {place}) is is_edge
