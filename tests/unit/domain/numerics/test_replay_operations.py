"""Operations of a replay: compiled loops have the bits of the definition in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics import jit
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay import narrow_sums, operations
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Machine, Quantity

if not jit.HAVE_NUMBA:
    pytest.skip("numba: not installed", allow_module_level=True)

Array = NDArray[np.float64]
FORMATS = ("fp32", "bf16", "fp16", "tf32")
MODES: tuple[Mode, ...] = ("even", "zero", "random")
EDGES = (
    *(0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 5e-324, 1e-310, 1.7e308),
    *(65504.0, 65519.99, 65520.0, -65536.0, 3.3895e38, 3.4028235e38, 3.4028236e38, -1e39),
    *(2.0**-14, 2.0**-24, 2.0**-25, 3 * 2.0**-26, 2.0**-126, 2.0**-133, 2.0**-134, 2.0**-149),
    *(1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-11, 1.0 + 2.0**-24, 2.0 - 2.0**-30),
)
SHAPES = ((1, 1), (1, 7), (3, 1), (2, 100), (8, 33))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def drawn(shape: tuple[int, int], seed: int) -> Array:
    """Return values of any size, some of them special and some near ties of bf16."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-30, 30, shape)
    is_tie = generator.random(shape) < 0.3
    values = np.where(is_tie, round_to(values, "bf16") * (1.0 + 2.0**-9), values)
    return np.where(generator.random(shape) < 0.1, generator.choice(EDGES, shape), values)


def quantities(shape: tuple[int, int], *, transposed: bool) -> Iterator[Quantity]:
    """Yield quantities with noise, shared errors and slack of every shape that a replay has."""
    rows, columns = shape

    def placed(values: Array) -> Array:
        return np.asfortranarray(values) if transposed else values

    for seed, other in enumerate(((1, 1), (rows, 1), (1, columns), shape)):
        values, size = placed(drawn(shape, seed)), np.abs(drawn(other, seed + 10))
        yield Quantity(values)
        yield Quantity(values, placed(size * 2.0**-40), slack=placed(size * 2.0**-9))
        yield Quantity(values, placed(size * 2.0**-40), {"mean": placed(drawn(other, seed + 20))})
        yield Quantity(placed(drawn(other, seed)), slack=placed(0.0 * size))


def on_both_paths(
    monkeypatch: pytest.MonkeyPatch, compute: Callable[[], Quantity]
) -> list[tuple[object, ...]]:
    """Return the bits of a result, its shapes and its layouts, by NumPy and by compiled loops."""
    results = []
    for is_loaded in (False, True):
        monkeypatch.setattr(jit.Compiled, "is_used", is_loaded)
        result = compute()
        arrays = (result.values, result.noise, result.slack, *result.shared.values())
        results.append(
            tuple(
                (a.shape, a.flags.c_contiguous, np.where(np.isnan(a), np.nan, a).tobytes())
                for a in arrays
            )
        )
    return results


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMATS)
def test_values_are_rounded_as_formats_rounds_them(form: str, mode: Mode) -> None:
    grid = operations.grid(form, mode)
    assert grid is not None
    values = np.concatenate([EDGES, drawn((1, 2000), 1)[0]])
    values = np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])
    expected = round_to(values, form, mode).astype(np.float64)
    computed = np.array([operations.narrowed(value, *grid) for value in values])
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(computed), ~numbers)
    assert computed[numbers].tobytes() == expected[numbers].tobytes()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_operations_have_the_bits_and_the_layout_of_numpy(
    shape: tuple[int, int], transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(Program())
    for a in quantities(shape, transposed=transposed):
        for b in quantities(shape, transposed=transposed):
            for operation in (machine.multiply, machine.add, machine.subtract):
                numpy_has, compiled_has = on_both_paths(monkeypatch, partial(operation, a, b))
                assert numpy_has == compiled_has
        for power in (machine.root, machine.rsqrt):
            numpy_has, compiled_has = on_both_paths(monkeypatch, partial(power, a))
            assert numpy_has == compiled_has


@pytest.mark.parametrize("mode", ["even", "zero", "away"])
@pytest.mark.parametrize("form", [*FORMATS, "bfp8_b"])
def test_stored_quantities_have_the_bits_of_numpy(
    form: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(Program(stored={"x^": form}, rounding=mode))
    for shape in SHAPES:
        for transposed in (False, True):
            for a in quantities(shape, transposed=transposed):
                numpy_has, compiled_has = on_both_paths(
                    monkeypatch, partial(machine.store, a, "x^")
                )
                assert numpy_has == compiled_has


@pytest.mark.parametrize("mode", ["even", "zero", "away", "random"])
@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_sums_that_are_stored_at_each_addition_have_the_bits_of_numpy(
    form: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = drawn((40, 9), 3)
    reach = np.where(np.arange(9) % 3, np.abs(terms) * 2.0**-9, 0.0)
    for order in ColumnOrder:
        if order in (ColumnOrder.blocked, ColumnOrder.unordered):
            continue

        def sums(order: ColumnOrder = order) -> Quantity:
            return Quantity(narrow_sums.bounds(terms, reach, form, order, mode))

        numpy_has, compiled_has = on_both_paths(monkeypatch, sums)
        assert numpy_has == compiled_has, order


def test_no_terms_have_the_sum_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_loaded in (False, True):
        monkeypatch.setattr(jit.Compiled, "is_used", is_loaded)
        none = np.zeros((0, 4, 3))
        assert narrow_sums._running(none, "bf16", "even").tolist() == np.zeros((4, 3)).tolist()
