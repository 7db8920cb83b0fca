"""Distances from cells: compiled loops have the bits of the definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics import jit
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay.cells import cells, half_cell
from gonogo.numerics.replay.quantity import NOTHING, Quantity

if not jit.HAVE_NUMBA:
    pytest.skip("numba: not installed", allow_module_level=True)

FORMATS = ("fp32", "bf16", "fp16")
SHAPES = ((1, 1), (3, 7), (5, 64), (2, 1001))
SPECIAL = (0.0, -0.0, 1.0, -2.0, 2.0**-14, 2.0**-130, 65504.0, np.inf, -np.inf, np.nan)


def pairs(shape: tuple[int, int], form: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return outputs and values beside them: near, far, equal, at ties, not finite."""
    generator = np.random.default_rng(shape[1])
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-30, 15, shape)
    flat = values.reshape(-1)
    flat[: len(SPECIAL)] = SPECIAL[: len(flat)]
    with np.errstate(all="ignore"):
        output = round_to(values, form).astype(np.float64)
        steps = generator.choice([0.0, 0.0, 0.5, 1.0, 3.0], shape) * 2.0**-8
        output = round_to(output * (1.0 + steps), form).astype(np.float64)
    output[-1, -1] = generator.choice(SPECIAL)
    return output, values


def on_both_paths(
    monkeypatch: pytest.MonkeyPatch,
    output: NDArray[np.float64],
    replay: Quantity,
    form: str,
    mode: Mode,
) -> list[bytes]:
    results = []
    for is_loaded in (False, True):
        monkeypatch.setattr(jit.Compiled, "is_used", is_loaded)
        with np.errstate(all="ignore"):
            half = half_cell(output, replay.values, form)
            measured = cells(output, replay, form, mode)
            shared = measured.shared
        numbers = (half, measured.distance, shared.largest, shared.estimates)
        # a NaN is a NaN, whichever
        results.append(b"".join(np.where(np.isnan(a), np.nan, a).tobytes() for a in numbers))
    return results


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("mode", ["even", "away", "zero"])
@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_distances_have_the_bits_of_numpy(
    form: str, mode: Mode, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    output, values = pairs(shape, form)
    generator = np.random.default_rng(1)
    with np.errstate(invalid="ignore"):
        noise = generator.random(shape) * (2.0**-20 * values) ** 2
    of_rows = generator.random((shape[0], 1))
    steps = np.where(np.isfinite(values), np.abs(values), 1.0) * generator.integers(0, 2, shape)
    for replay in (
        Quantity(values),
        Quantity(values, noise, {"rstd": values * 2.0**-23, "mean": of_rows * 2.0**-23}),
        Quantity(values, noise, slack=steps * 2.0**-9),
        Quantity(values, noise, slack=of_rows * 2.0**-9),
    ):
        numpy_has, compiled_has = on_both_paths(monkeypatch, output, replay, form, mode)
        assert numpy_has == compiled_has


def test_a_value_for_all_elements_of_a_row_goes_to_the_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, _ = pairs((3, 7), "bf16")
    replay = Quantity(np.ones((3, 1)), NOTHING + 2.0**-40)
    numpy_has, compiled_has = on_both_paths(monkeypatch, output, replay, "bf16", "even")
    assert numpy_has == compiled_has
