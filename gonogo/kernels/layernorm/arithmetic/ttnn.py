"""The budget terms of ttnn's LayerNorm kernels, where they differ from `generic`.

`generic` stores every step as bf16. The terms were read in the kernels' sources, which the ttnn
wheel carries (ttnn/cpp/ttnn/operations: moreh/moreh_layer_norm_backward and
normalization/layernorm), and measured on the simulated Wormhole (docs/wormhole.md has the figures).
"Wide": Dst is fp32 (accumulate fp32). "Narrow": it has 16 bits.

moreh's backward computes dx = ((n P - sum P) - x^ sum(P x^)) (rstd / n), every step through a
buffer:

- Buffers are fp32 when Dst is wide, and bf16 when it is narrow. A wide value is read back as TF32,
  truncated, and as the first factor of a product without its last bit (2^-9). Two such reads make
  x^: no better than the 2^-8 of `generic`, whose terms therefore stay.
- n P has the constant n in bf16 beside P in fp32. An operation of mixed formats reads its second
  operand as bf16, truncated: half an ulp of noise (`generic`'s stored P), and half an ulp toward
  zero of the whole output, 2^-8 (`scale`). s1 and s2 lose as much (`read_sum`).
- 1/n and n are bf16 constants, truncated. 1/n is a factor of everything: dN in `scale`. n is a
  factor of P alone: what it is off by, s1 and s2 are off by in the other direction (`reciprocal`).
- Four products lie between an input and dx, not one: three more times the fidelity's mean loss
  (`scale`).
- Row sums run over tiles in a buffer: read back, aligned and stored at every tile except the first
  (`accumulate`, `additions`).
- Column sums run over row tiles in the same way (`stored_partial`). Inside a tile they run in Dst,
  in groups of 8 rows that are aligned to their largest. That is one rounding for 8 rows (`column`),
  at 2^-12 when Dst is wide (as the forward's `half_grid`), at bf16 when it is narrow.

ttnn.layer_norm is the dataflow that `generic` describes, except for fp32 tensors with a narrow Dst.
Its buffers are bf16 then, and y itself has passed through a 16-bit register before it is written as
fp32; gamma and beta, fp32 beside bf16, are read as bf16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

ARITHMETIC = "ttnn"

ROWS_TOGETHER = 8
"""Rows that the FPU's pooling adds in one step."""


def truncated(value: float) -> float:
    """Return a constant as these kernels make it: the upper half of its fp32."""
    bits = np.array([value], dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return float(bits.view(np.float32)[0])


def backward(
    test: TestSpec,
    roundoff: Mapping[str, float],
    *,
    read: float,
    alignment: float,
    losses: tuple[float, float],
) -> dict[str, Any]:
    """Return the fields of BackwardTerms in which moreh's backward differs.

    read: TF32's truncation. alignment: ELWADD's half step. losses: what a product loses at this
    fidelity, (max, mean).
    """
    wide = test.numerics.accumulate == "fp32"
    n = test.features
    bf16 = roundoff["bf16"]
    whole = abs(truncated(float(n)) * truncated(1.0 / n) - 1.0)
    return {
        "xhat": bf16 + losses[0],
        "reciprocal": abs(truncated(float(n)) / n - 1.0),
        "scale": whole + bf16 + 3 * losses[1],
        "read_sum": 2 * bf16 if wide else 0.0,
        "read_lane": read if wide else 0.0,
        "accumulate": read + alignment if wide else bf16,
        "additions": float(math.ceil(n / 32) - 1),
        "stored_column": read if wide else bf16,
        "stored_partial": read + alignment if wide else bf16,
        "column": (2.0**-12 if wide else bf16) / ROWS_TOGETHER,
    }


def forward(test: TestSpec, roundoff: Mapping[str, float], *, alignment: float) -> dict[str, Any]:
    """Return the fields of ForwardTerms in which ttnn.layer_norm differs."""
    if test.numerics.accumulate == "fp32":
        return {}
    fine = roundoff[test.numerics.output] < roundoff["bf16"]
    given = {test.numerics.format_of(name) for name in test.input_names}
    return {
        **({"read": 2 * roundoff["bf16"]} if "fp32" in given else {}),
        "stored": roundoff["bf16"],
        # The sum is below twice its larger operand: bf16's half ulp of it is an ulp of that
        "align": alignment + (2 * roundoff["bf16"] if fine else 0.0),
    }
