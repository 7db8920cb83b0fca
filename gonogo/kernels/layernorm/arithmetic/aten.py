"""The budget terms of PyTorch's LayerNorm and group norm.

They cover ATen's kernels, their decompositions, and what inductor makes of these. Sources:
PyTorch's public code (aten/src/ATen/native/cpu: layer_norm_kernel.cpp, group_norm_kernel.cpp,
moments_utils.h; torch/_refs, torch/_decomp/decompositions.py), and measurements on torch 2.13
(docs/torch.md):

- 16-bit inputs are widened to fp32, everything inside is fp32, and results are rounded once, to
  nearest even. So `out` is all that a 16-bit test sees of the rounding, h(y) or h(dx).
- Forward statistics: Welford in chunks of 16 vectors, the chunks cascaded, then the lanes of a
  vector. A value takes part in at most 16 + log2(N) + 16 roundings (16 lanes of AVX-512, 8 of
  AVX2). var_mean is no worse. rstd = 1 / sqrt(var + epsilon): three roundings.
- On a CPU mean and rstd have the format of gamma: rounded once more. Where autograd saves them for
  its backward pass (`statistics: own`), that pass uses the rounded ones: `saved`.
- Backward: sums of P and of P x run in order in each lane of a vector, N / 8 additions. x still has
  its mean; the mean is subtracted afterwards. Then dx = a dy gamma + b x + c. Subtracting the mean
  late loses u |x| r, not u |x^|, for each term (`align`), and u |mean| r for what the terms have in
  common (`late_mean`).
- dgamma and dbeta are summed over rows in fp32, but ATen's CPU kernel of LayerNorm adds row after
  row to a buffer in the *format of x*. For bf16 that is a 16-bit running sum. (Found by measuring:
  with 64 rows of U[-1,1] dbeta is off by 100 times half an ulp.) That is arithmetic model
  `torch-eager`. Group norm, the decomposition and compiled code don't do so: arithmetic model
  `torch`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

ARITHMETICS = ("torch", "torch-eager")

MIN_LANES = 8
"""Lanes of the narrowest vector unit that torch is built for (AVX2)."""
LATE_MEAN_ROUNDINGS = 32
"""The multiple of u |x| r that the sums of P x, and a x + b, lose by a mean subtracted late.

A lane sums N / 8 terms whose roundings are a random walk: sqrt(N / 8) is 32 at N = 8192.
"""


def forward(test: TestSpec, roundoff: Mapping[str, float]) -> dict[str, Any]:
    """Return the fields of ForwardTerms, except those of the output."""
    u = roundoff["fp32"]
    return {
        "stored": u,
        # x - mean, or x rstd - mean rstd: two products and a sum, u |x| each, |x| up to twice its
        # binade
        "align": 4 * u,
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
        "saved": roundoff[test.numerics.format_of("gamma")],
    }


def backward(test: TestSpec, arithmetic: str, roundoff: Mapping[str, float]) -> dict[str, Any]:
    """Return the fields of BackwardTerms, except those of the output and of computed statistics."""
    u = roundoff["fp32"]
    additions = float(min(test.features, 1024) // MIN_LANES + 16)
    return {
        "xhat": 2 * u,
        "align": LATE_MEAN_ROUNDINGS * u,
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
        # equal terms in order: roundings of one sign, uniform
        "late_mean": additions * u / 12**0.5,
    }
