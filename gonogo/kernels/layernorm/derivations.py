"""The gradients that libraries derive from single operations, and what each of them stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gonogo.kernels.normalization.moments import TAILS
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import RECIPROCAL

TORCH = "autograd of (x - mean) rstd"
TENSORFLOW = "tape of (x - mean) rstd"
MLX = "vjp of (x - mean) rstd"
MOMENTS = "tape of x (gamma rstd) + (beta - mean gamma rstd)"
POWER = "autograd of x rstd, pow(x, 2)"
QUOTIENT = "autograd of (x - mean) / root"
JAX = "transpose of (x - mean) rstd, jnp.var"
SQUARE = "transpose of x rstd, jnp.mean(x^2)"
FAST = "transpose of (x - mean) rstd, E[x^2] - mean^2"

FORWARD = ("mean", "variance", "variance + epsilon", "x - mean", "x^")
PRODUCTS: Mapping[str, tuple[str, ...]] = {
    TORCH: (
        "P", "rstd P", "P (x - mean)", "sum of P (x - mean)", "rstd^2", "rstd^3",
        "d variance", "d variance / N", "d square", "d (x - mean)", "d mean", "d mean / N",
    ),
    TENSORFLOW: (
        "P", "rstd P", "P (x - mean)", "sum of P (x - mean)", "rstd^2", "rstd times the sum",
        "d variance", "d variance / N", "d square", "d (x - mean)", "d mean", "d mean / N",
    ),
    MLX: (
        "P", "rstd P", "P (x - mean)", "sum of P (x - mean)", "rstd / (variance + epsilon)",
        "d variance", "d variance / N", "d square", "d (x - mean)", "d mean", "d mean / N",
    ),
    MOMENTS: (
        "gamma rstd", "d x of the product", "dy x", "dy mean", "d (gamma rstd)",
        "d (gamma rstd) gamma", "d rstd", "rstd^2", "rstd times the sum", "d variance",
        "d variance / N", "d square", "d mean terms", "d mean", "d mean / N",
        "d x of the statistics",
    ),
    QUOTIENT: (
        "P", "P / root", "x^ / root", "P x^ / root", "d root", "d variance", "2 d variance / N",
        "d square", "d mean", "d mean / N", "d x of the statistics",
    ),
    JAX: (
        "P", "rstd P", "rstd P added", "P (x - mean)", "rstd divided",
        "rstd / (variance + epsilon)", "d variance", "d x of the variance", "d mean",
        "d mean / N", "d (x - mean)",
    ),
    FAST: (
        "P", "rstd P", "rstd P added", "P (x - mean)", "rstd divided",
        "rstd / (variance + epsilon)", "d variance", "d variance / N", "d square", "d mean^2",
        "d mean", "sum of d mean", "d mean / N", "d (x - mean)",
    ),
}  # fmt: skip
"""The quantities of dx that each of the derivations stores, besides those of the forward pass."""
UNCENTERED: Mapping[str, tuple[str, ...]] = {
    TORCH: (
        "P", "rstd P", "P x", "sum of P x", "rstd^2", "rstd^3", "d variance", "d variance / N",
        "d square", "d x",
    ),
    POWER: (
        "P", "rstd P", "P x", "sum of P x", "rstd^2", "rstd^3", "d variance", "d variance / N",
        "d square",
    ),
    SQUARE: (
        "P", "rstd P", "P x", "sum of P x", "rstd divided", "rstd / (variance + epsilon)",
        "d variance", "d variance / N", "d square",
    ),
    MLX: (
        "P", "rstd P", "P x", "sum of P x", "rstd / (variance + epsilon)", "d variance",
        "d variance / N", "d square", "d x",
    ),
    TENSORFLOW: (
        "P", "rstd P", "P x", "sum of P x", "rstd times the sum", "rstd^2", "d variance",
        "d variance / N", "d square", "d x",
    ),
}  # fmt: skip
"""The same where no mean is subtracted: the variance is the mean square."""
DERIVED = frozenset({*PRODUCTS, *UNCENTERED})
VARIANCE_OF = {
    TORCH: "x - mean",
    TENSORFLOW: "x - mean",
    MLX: "x - mean",
    MOMENTS: "x - mean",
    QUOTIENT: "x",
    JAX: "x",
    FAST: "E[x^2] - mean^2",
}
DISTINCT = (TORCH, MOMENTS, QUOTIENT, JAX, FAST)
UNCENTERED_DISTINCT = (TORCH, POWER, SQUARE)
"""The derivations that differ where nothing is stored, with a mean and without one."""
STATISTICS_OF: Mapping[str, tuple[str, ...]] = {
    TORCH: (*FORWARD, "square", "rstd"),
    TENSORFLOW: (*FORWARD, "square", "rstd"),
    MLX: (*FORWARD, "square", "root", "rstd", "sum of x", "sum of squares", "1/N"),
    MOMENTS: ("mean", "variance", "variance + epsilon", "x - mean", "square", "rstd"),
    QUOTIENT: (*FORWARD, "root"),
    JAX: (*FORWARD, "rstd"),
    FAST: (*FORWARD, "square", "mean square", "mean^2", "rstd"),
}
"""The quantities of the forward pass that each stores."""
UNCENTERED_STATISTICS = ("square", "variance", "variance + epsilon", "rstd", "x^")
FIRST = ("epsilon", "sum of x", "sum of squares", "N", RECIPROCAL, *TAILS, "root")
"""The quantities that a forward pass may store besides those that its derivation names."""
SAVED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    TORCH: (("mean", "rstd"), ("mean", "variance")),
    QUOTIENT: (("mean", "root"), ("mean", "variance")),
}
"""The statistics of a row that a compiled forward pass saves in 16 bits for a compiled gradient.

torch.compile computes the rest of both passes in fp32, the variance from the fp32 mean.
"""
OF_FACTOR = ("dy x", "dy mean", "d (gamma rstd)")


def stored_names(product: str) -> tuple[str, ...]:
    """Return every quantity that a derivation stores, of the forward pass and of the gradient."""
    sums = ("sum of P (x - mean)",) if product in (JAX, FAST) else ()
    return (*STATISTICS_OF[product], *PRODUCTS[product], *sums)


def forward_names(product: str, *, centered: bool) -> tuple[str, ...]:
    """Return what a derivation may store before it sums the terms of dgamma."""
    names = STATISTICS_OF[product] if centered else UNCENTERED_STATISTICS
    extra = OF_FACTOR if product == MOMENTS else ()
    return (*names, *FIRST, *extra)


def derived(*, centered: bool = True) -> tuple[tuple[Program, tuple[str, ...]], ...]:
    """Return (form, stored quantities) of the gradients that libraries derive by themselves."""
    listed = _centered() if centered else _uncentered()
    unique = list(
        {
            (program.product, program.row_order, names): (program, names)
            for program, names in listed
        }.values()
    )
    return (*unique, *((program, ("epsilon", *names)) for program, names in unique))


def _uncentered() -> list[tuple[Program, tuple[str, ...]]]:
    """Return the gradients of kernels that subtract no mean."""
    listed = []
    for product, quantities in UNCENTERED.items():
        names = (*UNCENTERED_STATISTICS, *quantities)
        if product == SQUARE:
            order = ColumnOrder.windows
            program = Program(product=product, column_order=order, row_order=order)
            # compiled code keeps bf16's gradient of the variance, and fp16's contracted product, in
            # fp32
            for chosen in (names, _without(names, "d variance"), _without(names, "rstd P")):
                listed += [(program, chosen), (program, _without(chosen, "square"))]
            listed += _on_gpu(program, names)
        elif product == MLX:
            program = Program(product=product)
            listed.append((program, ("sum of squares", RECIPROCAL, "root", *names)))
        elif product == TENSORFLOW:
            listed += _of_eigen(Program(product=product), names)
        else:
            program = Program(product=product)
            for tail in ((), ("root",), ("root % 64",), ("root % 32",)):
                stored = (*names, *tail)
                listed += [(program, stored), (program, _without(stored, "rstd^2"))]
    return listed


def _centered() -> list[tuple[Program, tuple[str, ...]]]:
    """Return the gradients of kernels that subtract a mean."""
    listed = []
    for product, variance in VARIANCE_OF.items():
        names = stored_names(product)
        is_xla = product in (JAX, FAST)
        order = ColumnOrder.windows if is_xla else ColumnOrder.blocked
        program = Program(variance, product, column_order=order, row_order=order)
        if product == TORCH:
            # few 16-bit values on a CPU: rsqrt is a root and a reciprocal; fp16's cube is 1 step
            for tail in ((), ("root",), ("root % 64",), ("root % 32",)):
                stored = (*names, *tail)
                listed += [(program, stored), (program, _without(stored, "rstd^2"))]
        elif product in (TENSORFLOW, MOMENTS):
            listed += _of_eigen(program, names)
        elif not is_xla:
            listed.append((program, names))
        else:
            # XLA on a CPU: compiled code squares bf16's values and adds them up in fp32 before it
            # stores, and contracts fp16's products with the additions that follow
            bf16 = _without(names, "square", "sum of d mean")
            fp16 = _without(names, "rstd P added")
            listed += [(program, names), (program, bf16), (program, fp16)]
            listed.append((program, _without(fp16, "mean^2", "d mean^2")))
            listed += _on_gpu(program, names)
    for product, choices in SAVED.items():
        listed += [(Program("x", product), names) for names in choices]
    return listed


def _on_gpu(program: Program, names: tuple[str, ...]) -> list[tuple[Program, tuple[str, ...]]]:
    """Return XLA's gradients as a GPU runs them, which adds up a row in other lanes.

    Compiled for a Hopper, bf16 is added and multiplied in bf16, but its roots and quotients are
    fp32's. Between two of these nothing is stored: rstd is fp32 where a quotient takes it.
    """
    return [
        (replace(program, row_order=order, column_order=ColumnOrder.one_warp), stored)
        for order in (ColumnOrder.warps, ColumnOrder.tiles)
        for stored in (names, _without(names, "rstd divided"))
    ]


def _of_eigen(program: Program, names: tuple[str, ...]) -> list[tuple[Program, tuple[str, ...]]]:
    """Return TensorFlow's gradients on a CPU.

    Eigen adds up fp16 in packets along a row and in lanes down a column. The forward pass of bf16
    adds up and divides in fp32.
    """
    eigen = replace(program, column_order=ColumnOrder.lanes, row_order=ColumnOrder.packets)
    fp16 = (*names, *(("sum of x",) if "mean" in names else ()), "sum of squares", "N")
    if program.product == MOMENTS:  # the moments of fp16 are fp32's
        eigen = replace(eigen, variance="x")
        inside = ("x - mean", "square", "d variance / N", "d square", "d mean / N")
        fp16 = _without(names, *inside)
    return [
        choice
        for tail in ((), ("root % 8",))
        for choice in ((program, (*names, "N", *tail)), (eigen, (*fp16, *tail)))
    ]


def _without(names: tuple[str, ...], *left_out: str) -> tuple[str, ...]:
    return tuple(name for name in names if name not in left_out)
