"""The budget terms of PyTorch's LayerNorm and group norm (ATen's kernels, their decompositions,
what inductor makes of these).

Read in PyTorch's public sources (aten/src/ATen/native/cpu: layer_norm_kernel.cpp,
group_norm_kernel.cpp, moments_utils.h; torch/_refs, torch/_decomp/decompositions.py), and measured
on torch 2.13 (docs/torch.md):

- 16-bit inputs are widened to fp32, everything inside is fp32, results are rounded once, to nearest
  even: `out` is all that a 16-bit test sees of the rounding, h(y) or h(dx).
- Forward statistics: Welford in chunks of 16 vectors, the chunks cascaded, then the lanes of a
  vector: a value takes part in at most 16 + log2(N) + 16 roundings (16 lanes of AVX-512, 8 of
  AVX2). var_mean is no worse. rstd = 1 / sqrt(var + epsilon): three roundings.
- On a CPU mean and rstd have the format of gamma: rounded once more. Where autograd keeps them for
  its backward pass (`statistics: own`), that pass works with the rounded ones: `kept`.
- Backward: sums of P and of P x (x with its mean in it: the mean is taken out afterwards) run in
  order in each lane of a vector, N / 8 additions; then dx = a dy gamma + b x + c. What is lost by
  taking the mean out late is u |x| r, not u |x^|, for each term (`align`), and u |mean| r for what
  the terms have in common (`late_mean`).
- dgamma and dbeta are summed over rows in fp32 - but ATen's CPU kernel of LayerNorm adds row after
  row to a buffer in the *format of x*. For bf16 that is a 16-bit running sum (found by measuring:
  with 64 rows of U[-1,1] dbeta is off by 100 times half an ulp): arithmetic `torch-eager`. Group norm,
  the decomposition and compiled code don't: arithmetic `torch`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

ARITHMETICS = ("torch", "torch-eager")

LEAST_LANES = 8
"""Lanes of the narrowest vector unit that torch is built for (AVX2)."""
MEAN_LATER = 32
"""u |x| r, so many times, for x^ in sums of P x, and in a x + b. A lane sums N / 8 of them, whose
roundings are a random walk: sqrt(N / 8) is 32 at N = 8192."""


def forward(test: TestSpec, roundoff: Mapping[str, float]) -> dict[str, Any]:
    """ForwardTerms' fields, but for those of the output."""
    u = roundoff["fp32"]
    return {
        "stored": u,
        "align": 4
        # x - mean, or x rstd - mean rstd: two products and a sum, u |x| each, |x| up to twice its
        # binade
        * u,
        "read": 0.0,
        "product": u,
        "product_mean": 0.0,
        "reciprocal": u,
        "accumulate": u,
        "additions": 32.0 + math.ceil(math.log2(test.features)),
        "half_grid": 6 * u,  # of the variance: three roundings of rstd are twice as many of v
        "epsilon_error": u * test.epsilon,
        "scale": 2 * u,  # rstd gamma
        "first_order": True,
        "running": False,
        "kept": roundoff[test.numerics.format_of("gamma")],
    }


def backward(test: TestSpec, arithmetic: str, roundoff: Mapping[str, float]) -> dict[str, Any]:
    """BackwardTerms' fields, but for those of the output and of the kernel's own statistics."""
    u = roundoff["fp32"]
    additions = float(min(test.features, 1024) // LEAST_LANES + 16)
    return {
        "xhat": 2 * u,
        "align": MEAN_LATER * u,
        "read": 0.0,
        "product": u,
        "product_mean": 0.0,
        "stored_product": u,
        "stored_weighted": 2 * u,
        "stored_sum": 2 * u,
        "read_sum": 0.0,
        "read_lane": 0.0,
        "reciprocal": u,
        "accumulate": u,
        "additions": additions,
        "difference": u,
        "scale": 4 * u,  # a^3 / N before the last sum
        "stored_column": 2 * u,
        "stored_partial": 0.0,
        "in_order": True,
        "column": roundoff[test.numerics.format_of("x")] if arithmetic == "torch-eager" else u,
        "late_mean": additions
        * u
        / 12**0.5,  # equal terms in order: roundings of one sign, uniform
    }
