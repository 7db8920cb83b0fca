"""Kernels in NumPy's float32 for exact inputs: right ones in many forms, and one-line edits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from numeric_cases import copied

F32 = np.float32
Array = NDArray[np.float32]


def exact_test(kernel: str, *shape: int, fmt: str = "bf16", **fields: Any) -> TestSpec:
    """Return a test with exact inputs, in one format."""
    numerics = {"input": fmt, "output": fmt, "buffers": fmt} | fields.pop("numerics", {})
    data = {"kernel": kernel, "shape": list(shape), "inputs": {"regime": "exact"}}
    return TestSpec.parse(data | {"numerics": numerics} | fields)


def edit_cases(edits: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """Return (features, format, edit): each edit in fp32 and bf16, every fourth one in fp16."""
    both = [(size, fmt, edit) for size, fmt in ((200, "fp32"), (64, "bf16")) for edit in edits]
    return both + [(200, "fp16", edit) for edit in list(edits)[::4]]


def inputs_of(test: TestSpec, seed: int = 0) -> dict[str, Array]:
    """Return the inputs as the device gets them; the caller may change them."""
    return copied(_drawn(test, seed))


@lru_cache(maxsize=100)
def _drawn(test: TestSpec, seed: int) -> dict[str, Array]:
    """Draw inputs once for all kernels and edits that are tried on them."""
    return quantise(test, generate(test, seed))


def lane_sum(a: Array, lanes: int) -> Array:
    """Return row sums by lanes: each lane adds its columns in order, then the lanes in order."""
    total = np.zeros((a.shape[0], lanes), dtype=F32)
    for start in range(0, a.shape[1], lanes):
        part = a[:, start : start + lanes]
        total[:, : part.shape[1]] += part
    result = np.zeros(a.shape[0], dtype=F32)
    for lane in range(lanes):
        result += total[:, lane]
    return result


def layernorm(
    test: TestSpec,
    given: Mapping[str, Array],
    *,
    lanes: int = 8,
    form: str = "centered",
    reciprocal: bool = False,
    stored: str = "fp32",
) -> dict[str, Array]:
    """Return y of a right forward LayerNorm (or RMSNorm: without beta).

    form: centered, moments (E[x^2] - E[x]^2), affine (x a + b) or welford (chunks, merged).
    reciprocal: multiply by 1/N instead of dividing by N. stored: the format of rstd, x^, gamma x^.
    """
    x, gamma = given["x"].astype(F32), given["gamma"].astype(F32)
    beta = given.get("beta")
    count = F32(x.shape[1])

    def mean(a: Array) -> Array:
        total = lane_sum(a, lanes)
        return total * (F32(1) / count) if reciprocal else total / count

    def keep(a: Array) -> Array:
        return round_to(a, stored)

    if form == "welford":
        middle, variance = _welford(x, 64)
    else:
        middle = mean(x) if beta is not None else np.zeros(len(x), dtype=F32)
        if form == "moments":
            variance = mean(x * x) - middle * middle
        else:
            variance = mean((x - middle[:, None]) ** 2)
    rstd = keep(F32(1) / np.sqrt(variance + F32(test.epsilon)))
    if form == "affine":
        scale = rstd[:, None] * gamma
        y = x * scale + ((0 if beta is None else beta) - middle[:, None] * scale)
    else:
        y = keep(keep((x - middle[:, None]) * rstd[:, None]) * gamma)
        y = y if beta is None else y + beta
    return {"y": round_to(y, test.numerics.output)}


def _welford(x: Array, chunk: int) -> tuple[Array, Array]:
    """Return mean and variance, merged from the statistics of chunks by Chan's formula."""
    count = F32(0)
    mean = np.zeros(len(x), dtype=F32)
    squares = np.zeros(len(x), dtype=F32)
    for start in range(0, x.shape[1], chunk):
        part = x[:, start : start + chunk]
        size = F32(part.shape[1])
        other = part.sum(axis=1, dtype=F32) / size
        more = ((part - other[:, None]) ** 2).sum(axis=1, dtype=F32)
        total = count + size
        delta = other - mean
        mean = mean + delta * (size / total)
        squares = squares + more + delta * delta * (count * size / total)
        count = total
    return mean, squares / count


FORWARD_EDITS = {
    "gamma missing": ("gamma", "gamma is missing"),
    "gamma a tile early": ("gamma", "one tile (32 columns) too early"),
    "gamma a column early": ("gamma", "one column too early"),
    "beta missing": ("beta", "beta is missing"),
    "beta a tile early": ("beta", "beta is read one tile"),
    "mean not subtracted": ("mean", "the mean is not subtracted"),
    "mean without a tile": ("mean", "the mean leaves out tile"),
    "mean of the row before": ("stale row", "the mean is that of the previous row"),
    "variance without a tile": ("variance", "the variance leaves out tile"),
    "variance without the last tile": ("variance", "the variance leaves out tile"),
    "unbiased": ("variance", "divides by N - 1"),
    "epsilon times 1000": ("epsilon", "epsilon has a factor of"),
    "no epsilon": ("epsilon", "epsilon is missing"),
    "rstd of the row before, every 8th": ("stale row", "rstd is that of the previous row"),
    "factor 1.001": ("factor", "x^ has a factor of"),
    "factor 1.0001": ("factor", "x^ has a factor of"),
    "factor 1.00001": ("factor", "x^ has a factor of"),
    "factor 0.99999": ("factor", "x^ has a factor of"),
    "row 7 is row 5": ("stale row", "the outputs are those of the row 2 before"),
    "a tile of zeros": ("output", "the outputs are 0"),
}
"""Edits of a forward LayerNorm: the term that is wrong, and words of its reading."""


def middle_tile(features: int) -> slice:
    """Return the columns of the tile that the edits leave out."""
    tile = -(-features // 32) // 2
    return slice(32 * tile, 32 * (tile + 1))


def edited_layernorm(test: TestSpec, given: Mapping[str, Array], edit: str) -> dict[str, Array]:
    """Return y of a forward LayerNorm in float32 with one edit of FORWARD_EDITS."""
    x, gamma, beta = (given[name].astype(F32) for name in ("x", "gamma", "beta"))
    count = x.shape[1]
    last = slice(32 * ((count - 1) // 32), count)
    ones = np.ones(count, dtype=bool)
    in_mean, in_variance = ones.copy(), ones.copy()
    in_mean[middle_tile(count) if edit == "mean without a tile" else slice(0)] = False
    in_variance[middle_tile(count) if edit == "variance without a tile" else slice(0)] = False
    in_variance[last if edit == "variance without the last tile" else slice(0)] = False
    mean = x[:, in_mean].sum(axis=1) / F32(count)
    if edit == "mean of the row before":
        mean = np.concatenate([mean[:1], mean[:-1]])
    if edit == "mean not subtracted":
        mean = 0 * mean
    centered = x - mean[:, None]
    size = F32(count - 1 if edit == "unbiased" else count)
    variance = (centered[:, in_variance] ** 2).sum(axis=1) / size
    epsilon = {"epsilon times 1000": 1000, "no epsilon": 0}.get(edit, 1) * test.epsilon
    rstd = F32(1) / np.sqrt(variance + F32(epsilon))
    if edit.startswith("rstd of"):
        rstd[9::8] = rstd[8::8][: rstd[9::8].size]
    if edit.startswith("factor"):
        rstd = rstd * F32(edit.split()[1])
    if edit == "gamma missing":
        gamma = np.ones_like(gamma)
    if edit.startswith("gamma a"):
        gamma = np.roll(gamma, 32 if "tile" in edit else 1)
    if edit == "beta missing":
        beta = np.zeros_like(beta)
    if edit == "beta a tile early":
        beta = np.roll(beta, 32)
    y = round_to(centered * rstd[:, None] * gamma + beta, test.numerics.output)
    if edit == "row 7 is row 5":
        y[6] = y[4]
    if edit == "a tile of zeros":
        y[:, middle_tile(count)] = 0
    return {"y": y}


BACKWARD_EDITS = {
    "no s1": ("dx", "s1", "s1 is not subtracted"),
    "s1 twice": ("dx", "s1", "s1 is subtracted twice"),
    "no s2": ("dx", "s2", "s2 is not subtracted"),
    "s1 without a tile": ("dx", "s1", "s1 leaves out tile"),
    "s2 without a tile": ("dx", "s2", "s2 leaves out tile"),
    "s1 times 1.00001": ("dx", "s1", "s1 has a factor of 1 + 1e-05"),
    "s2 times 1.00001": ("dx", "s2", "s2 has a factor of 1 + 1e-05"),
    "s2 of the row before, every 8th": ("dx", "stale row", "s2 is that of the previous row"),
    "dx times 1.001": ("dx", "factor", "dx has a factor of"),
    "dx times 1.00001": ("dx", "factor", "dx has a factor of"),
    "gamma missing": ("dx", "gamma", "gamma is missing"),
    "gamma a tile early": ("dx", "gamma", "one tile (32 columns) too early"),
    "dgamma without the last row": ("dgamma", "rows", "leaves out row 40 of 40"),
    "dbeta without the last row tile": ("dbeta", "rows", "leaves out row tile 2 of 2"),
}
"""Edits of a backward LayerNorm of 40 rows: the output, the wrong term, words of the reading."""


def layernorm_gradients(
    test: TestSpec, given: Mapping[str, Array], edit: str = "", *, stored: str = "fp32"
) -> dict[str, Array]:
    """Return dx, dgamma and dbeta in float32, right or with an edit of BACKWARD_EDITS.

    stored: the format of x^, P, P x^, s1, s2 and x^ s2.
    """
    x, gamma, dy = (given[name].astype(F32) for name in ("x", "gamma", "dy"))
    count = F32(x.shape[1])

    def keep(a: Array) -> Array:
        return round_to(a, stored)

    if "rstd" in given:
        mean, rstd = given["mean"].astype(F32), given["rstd"].astype(F32)
    else:
        mean = x.sum(axis=1) / count
        variance = ((x - mean[:, None]) ** 2).sum(axis=1) / count
        rstd = F32(1) / np.sqrt(variance + F32(test.epsilon))
    xhat = keep((x - mean[:, None]) * rstd[:, None])
    if edit == "gamma missing":
        gamma = np.ones_like(gamma)
    if edit == "gamma a tile early":
        gamma = np.roll(gamma, 32)
    product = keep(dy * gamma)
    terms = [product.copy(), keep(product * xhat)]
    for name, term in zip(("s1", "s2"), terms, strict=True):
        if edit == f"{name} without a tile":
            term[:, middle_tile(x.shape[1])] = 0
    s1, s2 = (keep(term.sum(axis=1) / count) for term in terms)
    s1 = s1 * F32({"no s1": 0, "s1 twice": 2, "s1 times 1.00001": 1.00001}.get(edit, 1))
    s2 = s2 * F32({"no s2": 0, "s2 times 1.00001": 1.00001}.get(edit, 1))
    if edit.startswith("s2 of"):
        s2[8::8] = s2[7::8][: s2[8::8].size]
    dx = rstd[:, None] * (product - s1[:, None] - keep(xhat * s2[:, None]))
    if edit.startswith("dx times"):
        dx = dx * F32(edit.split()[2])
    rows = {"dgamma without the last row": -1, "dbeta without the last row tile": -8}
    stop = len(x) + rows.get(edit, 0)
    sums = {
        "dgamma": (dy * xhat)[: stop if "dgamma" in edit else None].sum(axis=0),
        "dbeta": dy[: stop if "dbeta" in edit else None].sum(axis=0),
    }
    outputs = {"dx": dx} | sums
    return {name: round_to(value, test.numerics.output) for name, value in outputs.items()}
