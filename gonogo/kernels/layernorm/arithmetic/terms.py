"""Arithmetic models: a test's numerics and a build's dataflow as the numbers of a budget.

Every number is relative. A *stored* value adds h(v), half an ulp of its format at |v|, written here
as the format's unit roundoff u (h(v) = u 2^floor(log2 |v|)). A value *re-read* through a narrower
register is truncated and adds c |v|.

Sources: the public Wormhole ISA documentation (unpacker: fp32 -> TF32 drops 13 bits; ELWSUB aligns
on a 2^-10 grid; fidelity phases), and tt-train's and ttnn's public kernels (which intermediates are
stored, and in which format).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gonogo.errors import FieldError
from gonogo.kernels.layernorm.arithmetic import ttnn
from gonogo.spec.arithmetic_names import BUDGETS, FP32_BUDGET

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


UNIT_ROUNDOFF = {
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "bfp8_b": 2.0**-7,
}
"""Half an ulp at 1, by format.

bfp8_b: of the largest value of the block.
"""

BLOCK_FORMATS = frozenset({"bfp8_b"})

TF32_READ = 2.0**-10
"""fp32 -> TF32 at unpack is truncated: up to one ulp, 2^-10 of the value."""

ALIGNMENT = 2.0**-11
"""ELWADD and ELWSUB: half a step of the larger operand's 2^-10 grid."""

FIDELITY_LOSS = {
    "lofi": (5.9e-2, 2.15e-2),
    "hifi2": (7.8e-3, 2.7e-3),
    "hifi3": (4.0e-4, 5.1e-5),
    "hifi4": (0.0, 0.0),
}
"""The loss (max, mean) of a bf16 x bf16 product by fidelity phases, always toward zero.

It was measured over all mantissas.
"""

GENERIC_SCALE = 2.0**-9
"""The systematic relative error that `generic` allows a whole output: one factor stored in bf16.

Its cost: in such a kernel a wrong factor below 2^-9 can't be seen.
"""


ARITHMETIC = 2.0**-22
"""Four fp32 operations of the last line, each 2^-24 of the largest operand."""


def truncated_reciprocal(n: int) -> float:
    """Return 1/n as the packer makes it for a reduce scaler: truncated to bf16."""
    bits = np.array([1.0 / n], dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return float(bits.view(np.float32)[0])


def reciprocal_error(n: int) -> float:
    """Return dN = |n bf16(1/n) - 1|: 3.36e-3 at n = 8462, 0 at powers of two."""
    return abs(n * truncated_reciprocal(n) - 1.0)


@dataclass(frozen=True)
class BackwardTerms:
    """The errors that a layernorm_bw dataflow adds, all relative.

    u is the unit roundoff of a stored value, c that of a re-read one.
    """

    out: float  # u of the output's format
    out_block: bool  # the output shares one exponent in 16 values
    xhat: float  # u of stored x^
    align: float  # ELWSUB's half step, of max(|x|, |mean|)
    read: float  # c of x, mean, dy, gamma as the FPU reads them
    product: float  # c of each FPU product: phi_max and a 16-bit Dst
    product_mean: float  # its systematic part
    stored_product: float  # u of stored P
    stored_weighted: float  # u of stored P x^
    stored_sum: float  # u of stored s1 and s2
    read_sum: float  # c of s1 and s2 as they are read back
    read_lane: float  # c of the 32 lane partials as the matmul reads them
    reciprocal: float  # dN
    accumulate: float  # u of each addition of a running sum
    additions: float  # how many additions a row's running sum takes part in
    difference: float  # u of stored P - s1, x^ s2 and P - s1 - x^ s2
    scale: float  # systematic relative error of the whole output
    stored_column: float  # u of stored c = dy x^ (dgamma)
    stored_partial: float  # u of the column sums stored after each row tile
    in_order: bool  # sums may run in order over equal terms, whose roundings have one sign for long
    own_statistics: ForwardTerms | None  # where the kernel computes mean and rstd itself: how
    column: float | None = None  # u of each addition down a column, where it isn't `accumulate`
    # step, relative to a value's binade, of a buffer that truncates: any of them may; 0: none does
    cut: float = 0.0
    # partial sums down a column may be of any rows, not of whole tiles only
    any_order: bool = False


@dataclass(frozen=True)
class ForwardTerms:
    """The errors that a layernorm_fw dataflow adds."""

    out: float
    out_block: bool
    stored: float  # u of every stored intermediate: lane sums, mean, var, rstd, x^, gamma x^
    align: float  # half a step of ELWADD and ELWSUB
    read: float
    product: float
    product_mean: float
    reciprocal: float
    accumulate: float
    additions: float
    half_grid: float  # 2^-12: what the reduction itself loses, of |mu| and v
    epsilon_error: float  # |bf16 truncated epsilon - epsilon|, absolute
    scale: float  # systematic relative error of y
    # rounding of x - mean is fine enough to count once, not only squared, in the variance
    first_order: bool
    # the mean may be a running one (Welford): its rounding accumulates, and enters the variance
    running: bool
    # step, relative to a value's binade, of a buffer that truncates: any of them may, x - mean's
    # too; 0: none does
    cut: float = 0.0


def _checked(arithmetic: str) -> str:
    """Return the name of a budget. Raises FieldError for an unknown one."""
    if arithmetic not in (*BUDGETS, FP32_BUDGET):
        raise FieldError(
            "build.arithmetic",
            arithmetic,
            "has no budget",
            limit=", ".join((*BUDGETS, FP32_BUDGET)),
        )
    return arithmetic


def _wide(test: TestSpec) -> bool:
    """Return whether every tensor in and out is fp32.

    With the default of `buffers`, such a test requests no 16-bit buffer.
    """
    given = test.numerics.input
    inputs = {given} if isinstance(given, str) else set(given.values())
    return inputs == {"fp32"} and test.numerics.output == "fp32"


def _buffer(test: TestSpec, name: str) -> float:
    """Return u of a stored intermediate.

    fp32 and tf32 buffers are re-read as TF32, truncated. For `generic` and `ttnn` that also holds
    for an all-fp32 test that leaves `buffers` at its default.
    """
    by_default = (
        name in ("generic", ttnn.ARITHMETIC) and _wide(test) and test.numerics.buffers == "bf16"
    )
    if by_default or test.numerics.buffers in ("fp32", "tf32"):
        return TF32_READ
    return UNIT_ROUNDOFF[test.numerics.buffers]


def _cut(buffers: float) -> float:
    """Return a whole step of the buffers' format.

    Buffers that are re-read as TF32 have theirs as u already.
    """
    return buffers if buffers == TF32_READ else 2 * buffers


def _reads_tf32(test: TestSpec) -> bool:
    given = test.numerics.input
    inputs = {given} if isinstance(given, str) else set(given.values())
    return "fp32" in inputs


def backward_terms(test: TestSpec, arithmetic: str | None) -> BackwardTerms:
    """Return the terms of `layernorm_bw` under an arithmetic model (None: generic).

    Raises FieldError for an unknown arithmetic model.
    """
    name = _checked(arithmetic or "generic")
    numerics = test.numerics
    n = test.features
    tiles = -(-n // 32)
    own_statistics = forward_terms(test, arithmetic) if numerics.statistics == "own" else None
    out, block = UNIT_ROUNDOFF[numerics.output], numerics.output in BLOCK_FORMATS
    if name == FP32_BUDGET:
        u = UNIT_ROUNDOFF["fp32"]
        return BackwardTerms(
            out=out,
            out_block=block,
            xhat=2 * u,
            align=u,
            read=0.0,
            product=u,
            product_mean=0.0,
            stored_product=u,
            stored_weighted=2 * u,
            stored_sum=2 * u,
            read_sum=0.0,
            read_lane=0.0,
            reciprocal=u,
            accumulate=u,
            additions=float(min(n, 1024)),
            difference=u,
            scale=2 * u,
            stored_column=u,
            stored_partial=0.0,
            in_order=True,
            own_statistics=own_statistics,
        )
    phi_max, phi_mean = FIDELITY_LOSS[numerics.fidelity]
    wide_dst = numerics.accumulate == "fp32"
    accumulate = 2.0**-24 if wide_dst else UNIT_ROUNDOFF["bf16"]
    buffers = _buffer(test, name)
    common = BackwardTerms(
        out=out,
        out_block=block,
        xhat=buffers,
        align=ALIGNMENT,
        read=TF32_READ if _reads_tf32(test) else 0.0,
        product=phi_max + (0.0 if wide_dst else 2.0**-7),
        product_mean=phi_mean + (0.0 if wide_dst else 2.0**-8),
        stored_product=0.0,
        stored_weighted=0.0,
        stored_sum=0.0,
        read_sum=TF32_READ,
        read_lane=TF32_READ,
        reciprocal=reciprocal_error(n),
        accumulate=accumulate,
        additions=2.0 * tiles,
        difference=0.0 if wide_dst else 2.0**-7,
        scale=0.0 if wide_dst else 2.0**-8,
        stored_column=buffers,
        stored_partial=0.0,
        in_order=False,
        own_statistics=own_statistics,
    )
    if name == "tt-train":
        return common
    generic = replace(
        common,
        stored_product=buffers,
        stored_weighted=buffers,
        stored_sum=buffers,
        read_sum=0.0,
        read_lane=0.0,
        difference=max(buffers, common.difference),
        scale=max(GENERIC_SCALE if buffers >= 2.0**-8 else buffers, common.scale),
        stored_partial=buffers,
        cut=_cut(buffers),
        any_order=True,
    )
    if name == ttnn.ARITHMETIC:
        losses = FIDELITY_LOSS[numerics.fidelity]
        generic = replace(generic, cut=0.0, any_order=False)
        return replace(
            generic,
            **ttnn.backward(
                test, UNIT_ROUNDOFF, read=TF32_READ, alignment=ALIGNMENT, losses=losses
            ),
        )
    return generic


def forward_terms(test: TestSpec, arithmetic: str | None) -> ForwardTerms:
    """Return the terms of `layernorm_fw` under an arithmetic model (None: generic).

    The dataflow of ttnn and tt-train is the generic one, too: its bounds hold for kernels that
    store less. Raises FieldError for an unknown arithmetic model.
    """
    name = _checked(arithmetic or "generic")
    numerics = test.numerics
    n = test.features
    out, block = UNIT_ROUNDOFF[numerics.output], numerics.output in BLOCK_FORMATS
    if name == FP32_BUDGET:
        u = UNIT_ROUNDOFF["fp32"]
        return ForwardTerms(
            out=out,
            out_block=block,
            stored=u,
            align=u,
            read=0.0,
            product=u,
            product_mean=0.0,
            reciprocal=u,
            accumulate=u,
            additions=float(min(n, 1024)),
            half_grid=u,
            epsilon_error=0.0,
            scale=2 * u,
            first_order=True,
            running=True,
        )
    phi_max, phi_mean = FIDELITY_LOSS[numerics.fidelity]
    wide_dst = numerics.accumulate == "fp32"
    buffers = _buffer(test, name)
    epsilon = np.array([test.epsilon], dtype=np.float32)
    truncated = float((epsilon.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)[0])
    generic = ForwardTerms(
        out=out,
        out_block=block,
        stored=buffers,
        align=ALIGNMENT,
        read=TF32_READ if _reads_tf32(test) else 0.0,
        product=phi_max + (0.0 if wide_dst else 2.0**-7),
        product_mean=phi_mean + (0.0 if wide_dst else 2.0**-8),
        reciprocal=reciprocal_error(n),
        accumulate=2.0**-24 if wide_dst else UNIT_ROUNDOFF["bf16"],
        additions=2.0 * -(-n // 32),
        half_grid=2.0**-12,
        epsilon_error=abs(truncated - test.epsilon),
        scale=0.0,
        first_order=_reads_tf32(test),
        running=False,
        cut=_cut(buffers) if name == "generic" else 0.0,
    )
    return (
        replace(generic, **ttnn.forward(test, UNIT_ROUNDOFF, alignment=ALIGNMENT))
        if name == ttnn.ARITHMETIC
        else generic
    )
