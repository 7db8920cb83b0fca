"""From a seed to arrays: the raw tensors of a test, and their quantized form for the device.

(seed, tensor name, regime, shape) fix the bytes forever. A Philox stream per tensor, keyed by
SHA-256, gives raw 64-bit words. They are turned into floats here, with nothing but + - * / and
sqrt: no libm, whose last bits differ between machines, and no Generator methods, whose streams may
change between versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import FORMATS, Doubles, round_to
from gonogo.errors import FieldError
from gonogo.exactness.inputs import exact_inputs
from gonogo.judging import normals
from gonogo.judging.blocks import over_rows
from gonogo.spec.regimes import TILE, Regime
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import kernel_of

Floats = NDArray[np.float32]
MAX_SEED = 2**53
"""Seeds are JSON numbers: 0 <= seed < 2**53."""

STREAM = "gonogo-1"
"""The version of the streams. Changing it changes every input ever drawn."""


def generate(test: TestSpec, seed: int) -> dict[str, NDArray[Any]]:
    """Return the raw tensors of a seed.

    Each has its flat shape (TestSpec.flat_shape_of), float32, C-contiguous; whole numbers are
    int32, from 0 to their bound less one. For a kernel that is given its statistics also those of
    the raw x, (rows,), float64: see given_statistics. In the regime
    `exact` all tensors are drawn together (gonogo.exactness), already in their formats. Raises
    FieldError for a seed out of range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < MAX_SEED:
        raise FieldError("seed", seed, "must be an integer", limit=f"0 <= seed < {MAX_SEED}")
    raw: dict[str, NDArray[Any]] = {}
    if test.inputs.exact:
        raw |= _exact(test, seed)
    for name in () if raw else test.drawn_names:
        bound, shape = test.bound_of(name), test.matrix_shape_of(name)
        values: NDArray[Any]
        if bound is None:
            values = _draw(test.regime(name), shape, seed, name)
        else:
            values = (_words(shape, seed, name).astype(np.uint64) * bound >> 32).astype(np.int32)
        raw[name] = values.reshape(test.flat_shape_of(name))
    raw = given_statistics(test, raw[test.input_names[0]]) | raw
    return {name: raw[name] for name in test.input_names}


def _exact(test: TestSpec, seed: int) -> dict[str, NDArray[Any]]:
    """Return exact tensors of a seed, flat: of as few digits as the narrowest format has."""
    forms = {test.numerics.output, *map(test.numerics.format_of, test.input_names)}
    narrowest = min(forms, key=lambda form: FORMATS[form].precision)
    groups = int(test.parameter("num_groups")) if test.kernel == "groupnorm_fw" else 1
    form = "fp16" if narrowest == "tf32" else narrowest
    name = kernel_of(test).name
    tensors, _ = exact_inputs(name, test.shape, form, seed, test.epsilon, groups)
    flat = {name: array.reshape(test.flat_shape_of(name)) for name, array in tensors.items()}
    drawn = test.drawn_names
    return {
        name: array.astype(np.float32) if name in drawn else array for name, array in flat.items()
    }


def quantise(test: TestSpec, raw: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the device's inputs: each raw tensor rounded to nearest even to its input format.

    The result is float32, in the same shapes; whole numbers stay. mean and rstd are columns on the
    device: with a bfp format each value has a block, and so an exponent, of its own.
    """
    return {
        name: _quantized(values, test.numerics.format_of(name), column=test.is_per_row(name))
        if name in test.float_names
        else values
        for name, values in raw.items()
    }


def given_statistics(test: TestSpec, x: NDArray[Any]) -> dict[str, Doubles]:
    """Return the statistics of x (rows, N) that are inputs of the test's kernel, (rows,) each.

    They are empty where the kernel computes its own. A kernel that is given rstd alone subtracts no
    mean.
    """
    if test.input_names == test.drawn_names:
        return {}
    centered = "mean" in test.input_names
    mean, rstd = row_statistics(x, test.epsilon, centered=centered)
    return {"mean": mean, "rstd": rstd} if centered else {"rstd": rstd}


def row_statistics(
    x: NDArray[Any], epsilon: float, *, centered: bool = True
) -> tuple[Doubles, Doubles]:
    """Return mean and 1/sqrt(biased variance + epsilon) of each row of x (rows, N), in float64.

    They are summed in a fixed order. Without `centered` the mean is 0, and the variance is the mean
    square.
    """
    mean = np.empty(x.shape[0])
    rstd = np.empty(x.shape[0])
    features = x.shape[1]

    def block(start: int, stop: int) -> None:
        doubles = x[start:stop].astype(np.float64)
        mean[start:stop] = _sums(doubles) / features if centered else 0.0
        centred = doubles - mean[start:stop, None]
        rstd[start:stop] = 1.0 / np.sqrt(_sums(centred * centred) / features + epsilon)

    over_rows(block, x.shape[0], elements=x.size)
    return mean, rstd


def _sums(a: Doubles) -> Doubles:
    """Return row sums by halving.

    The width alone fixes the order, whatever vectors the processor has.
    """
    while a.shape[1] > 1:
        half = a.shape[1] // 2
        folded = a[:, :half] + a[:, half : 2 * half]
        if a.shape[1] % 2:
            folded[:, 0] += a[:, -1]
        a = folded
    return a[:, 0]


def _draw(regime: Regime, shape: tuple[int, int], seed: int, name: str) -> Floats:
    features = shape[1]
    match regime.regime:
        case "uniform":
            return _uniform(_words(shape, seed, name), regime["low"], regime["high"])
        case "normal":
            return _normal(_words(shape, seed, name), regime["mean"], regime["std"])
        case "offset":
            return _normal(_words(shape, seed, name), regime["offset"], regime["std"])
        case "constant":
            return np.full(shape, regime["value"], np.float32)
        case "hot_tile":
            values = _uniform(_words(shape, seed, name), -1.0, 1.0)
            start = int(regime["tile"]) * TILE
            values[:, start : start + TILE] = regime["value"]
            return values
        case "ramp":
            steps = np.arange(features, dtype=np.float64) / max(features - 1, 1)
            row = regime["low"] + (regime["high"] - regime["low"]) * steps
            return np.array(np.broadcast_to(row.astype(np.float32), shape))
    raise AssertionError(f"regime {regime.regime} passed validation")


def _words(shape: tuple[int, int], seed: int, name: str) -> NDArray[np.uint32]:
    """Return random 32-bit words in `shape`, the low half of each Philox word first."""
    digest = hashlib.sha256(f"{STREAM}/{seed}/{name}".encode()).digest()
    philox = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64))
    count = shape[0] * shape[1]
    words = philox.random_raw((count + 1) // 2)
    halves: NDArray[np.uint32] = words.astype("<u8", copy=False).view("<u4")[:count]
    return halves.reshape(shape)


def _uniform(words: NDArray[np.uint32], low: float, high: float) -> Floats:
    """Return low + (high - low) u in float32, u the top 24 bits times 2**-24.

    It is never above high, although a product rounds.
    """
    values = np.empty(words.shape, np.float32)
    width, start, end = np.float32((high - low) * 2.0**-24), np.float32(low), np.float32(high)

    def block(first: int, last: int) -> None:
        part = values[first:last]
        np.multiply(
            words[first:last] >> np.uint32(8), width, out=part, casting="unsafe", dtype=np.float32
        )
        np.add(part, start, out=part)
        np.minimum(part, end, out=part)

    over_rows(block, words.shape[0], elements=words.size)
    return values


def _normal(words: NDArray[np.uint32], mean: float, std: float) -> Floats:
    """Return mean + std z in float64, rounded once.

    z is the normal quantile of (word + 1/2) 2**-32.
    """
    values = np.empty(words.shape, np.float32)

    def block(first: int, last: int) -> None:
        values[first:last] = mean + std * normals.quantile(
            (words[first:last].astype(np.float64) + 0.5) * 2.0**-32
        )

    over_rows(block, words.shape[0], block=4, elements=words.size)
    return values


def _quantized(values: NDArray[Any], fmt: str, *, column: bool) -> Floats:
    if fmt == "fp32" and values.dtype == np.float32:
        return values
    if values.ndim == 1:
        rounded = round_to(values[:, None], fmt)[:, 0] if column else round_to(values, fmt)
        return rounded.astype(np.float32)
    result = np.empty(values.shape, np.float32)

    def block(start: int, stop: int) -> None:
        result[start:stop] = round_to(values[start:stop], fmt)  # exactly what float32 holds

    over_rows(block, values.shape[0], elements=values.size)
    return result
