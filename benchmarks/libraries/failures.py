"""Numerical failures of libraries, listed before a run, with reasons.

A listed failure isn't counted as a right kernel. Every other error of a library counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.libraries.cases import Case, inputs

MAX_FP16: Final = 65504.0
STALL_ROWS: Final[Mapping[str, int]] = {"bf16": 2**8, "fp16": 2**11}
"""A sum of equal terms in a 16-bit accumulator stops growing after so many."""


@dataclass(frozen=True)
class Failure:
    """A failure: whose it is, when it happens, which outputs it spoils, and why.

    Attributes:
        library: the library's name; empty: any.
        kernels: a regular expression that matches the start of the kernel's name.
        happens: from (case, seed) to whether the inputs cause it.
        reason: one sentence.
        outputs: the outputs that it spoils; empty: all.
    """

    library: str
    kernels: str
    happens: Callable[[Case, int], bool]
    reason: str
    outputs: tuple[str, ...] = ()

    def matches(self, library: str, kernel: str) -> bool:
        """Return whether it is this kernel's failure."""
        return self.library in ("", library) and re.match(self.kernels, kernel) is not None


def has_offset(case: Case, seed: int) -> bool:
    """Return whether abs(mean) exceeds 3 standard deviations in a row."""
    rows = inputs(case, seed)["x"].reshape(case.matrix).astype(np.float64)
    return bool((np.abs(rows.mean(1)) > 3 * rows.std(1)).any())


def has_ramp_or_offset(case: Case, seed: int) -> bool:
    """Return whether the regime is a ramp, or a row has an offset."""
    return case.regime == "ramp" or has_offset(case, seed)


def squares_overflow(case: Case, seed: int) -> bool:
    """Return whether a square of x exceeds the largest fp16."""
    x = inputs(case, seed)["x"].astype(np.float64)
    return case.format == "fp16" and bool((x * x > MAX_FP16).any())


def sums_overflow(case: Case, seed: int) -> bool:
    """Return whether a row's sum of x or of x^2 exceeds the largest fp16."""
    rows = inputs(case, seed)["x"].reshape(case.matrix).astype(np.float64)
    largest = max(np.abs(rows.sum(1)).max(), (rows * rows).sum(1).max())
    return case.format == "fp16" and bool(largest > MAX_FP16)


def columns_stall(case: Case, seed: int) -> bool:
    """Return whether dy has one sign and enough rows to stall a 16-bit accumulator."""
    if case.format not in STALL_ROWS or "dy" not in inputs(case, seed):
        return False
    one_sign = bool((inputs(case, seed)["dy"] >= 0).all())
    return one_sign and case.matrix[0] >= STALL_ROWS[case.format]


def cubes_overflow(case: Case, seed: int) -> bool:
    """Return whether rstd^3, or dy times it, exceeds the largest fp16."""
    rows = inputs(case, seed)["x"].reshape(case.matrix).astype(np.float64)
    largest = 1.0 / np.sqrt((rows.var(1) + case.epsilon).min())
    return case.format == "fp16" and "dy" in inputs(case, seed) and bool(largest**3 > MAX_FP16)


def products_overflow(case: Case, seed: int) -> bool:
    """Return whether a row's sum of dy gamma x, the gradient of rstd, exceeds the largest fp16."""
    given = inputs(case, seed)
    if case.format != "fp16" or "dy" not in given:
        return False
    x, dy = (given[name].reshape(case.matrix).astype(np.float64) for name in ("x", "dy"))
    if case.kind == "layernorm_bw":
        x = x - x.mean(axis=1, keepdims=True)
    return bool((np.abs((dy * given["gamma"] * x).sum(axis=1)) > MAX_FP16).any())


CANCELLATION: Final = "the variance is E[x^2] - E[x]^2, whose digits cancel at this offset"
OVERFLOW: Final = "a square, stored in fp16, overflows"
CUBE_OVERFLOW: Final = "the gradient of the variance, stored in fp16, overflows"
SUM_OVERFLOW: Final = "a row's sum in an fp16 accumulator overflows"
PRODUCT_OVERFLOW: Final = "the gradient of rstd, stored in fp16, overflows"

FAILURES: Final = (
    Failure("jax", r"linen\.\w+ fast variance", has_offset, CANCELLATION),
    Failure("jax-cuda", r"linen\.\w+ fast variance", has_offset, CANCELLATION),
    Failure("jax-cuda", "standardize", has_offset, CANCELLATION),
    Failure("liger-cuda", "GroupNorm", has_offset, CANCELLATION),
    Failure("jax", "standardize", has_offset, CANCELLATION),
    Failure("onnxruntime", "SkipLayerNorm", has_ramp_or_offset, CANCELLATION),
    Failure("onnxruntime", "GroupNormalization", has_offset, CANCELLATION),
    Failure("liger", "GroupNorm", has_offset, CANCELLATION),
    Failure("", "composite", squares_overflow, OVERFLOW),
    Failure("jax", "standardize", squares_overflow, OVERFLOW),
    Failure("jax-cuda", "standardize", squares_overflow, OVERFLOW),
    Failure(
        "", r"composite|standardize|nn\.moments|var_mean", cubes_overflow, CUBE_OVERFLOW, ("dx",)
    ),
    Failure("", "composite", products_overflow, PRODUCT_OVERFLOW, ("dx",)),
    Failure("tensorflow", r"composite|nn\.moments", sums_overflow, SUM_OVERFLOW),
    Failure("mlx", "composite", sums_overflow, SUM_OVERFLOW),
    Failure("liger", "GroupNorm", sums_overflow, SUM_OVERFLOW),
    Failure("liger-cuda", "GroupNorm", sums_overflow, SUM_OVERFLOW),
    Failure(
        "",
        "",
        columns_stall,
        "a 16-bit accumulator of one-signed rows stops growing",
        ("dgamma", "dbeta"),
    ),
)


def listed(library: str, kernel: str, case: Case, seed: int) -> list[Failure]:
    """Return the listed failures of a kernel on these inputs."""
    return [
        failure
        for failure in FAILURES
        if failure.matches(library, kernel) and failure.happens(case, seed)
    ]
