"""The replay of gradients that a library derives from single operations, each of which stores.

The formulas are those of the libraries' own derivative rules: torch's derivatives.yaml and
FunctionsManual.cpp, JAX's jvp rules of mul, div, rsqrt and square, transposed. Gradients of a value
that is used twice are added in the order in which the libraries visit the operations: last one
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gonogo.kernels.normalization.moments import TAILS, Moments
from gonogo.numerics.replay.graph import Columns
from gonogo.numerics.replay.narrow_sums import Place
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import RECIPROCAL, Machine, Quantity

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
        "P", "rstd P", "rstd P added", "P (x - mean)", "rstd / (variance + epsilon)", "d variance",
        "d x of the variance", "d mean", "d mean / N", "d (x - mean)",
    ),
    FAST: (
        "P", "rstd P", "rstd P added", "P (x - mean)", "rstd / (variance + epsilon)", "d variance",
        "d variance / N", "d square", "d mean^2", "d mean", "sum of d mean", "d mean / N",
        "d (x - mean)",
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
        "P", "rstd P", "P x", "sum of P x", "rstd / (variance + epsilon)", "d variance",
        "d variance / N", "d square",
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
OF_FACTOR = ("dy x", "dy mean", "d (gamma rstd)")


@dataclass(frozen=True)
class Forward:
    """The values that the forward pass leaves to its gradient.

    Attributes:
        x: (rows, N).
        dy, gamma: (rows, N), (1, N).
        product: P = dy gamma (rows, N), as the program stores it.
        normalized: x^ (rows, N), likewise.
        statistics: of each row.
    """

    x: Quantity
    dy: Quantity
    gamma: Quantity
    product: Quantity
    normalized: Quantity
    statistics: Moments


class Tape:
    """Evaluate gradients; `add_up` sums a row as the library does."""

    def __init__(
        self, program: Program, *, centered: bool, quick: bool, place: Place | None = None
    ) -> None:
        """Evaluate those of `program`; `quick` and `place` as in Machine.

        centered: whether a mean is subtracted from x; else "P (x - mean)" is stored as "P x".
        """
        self.machine = Machine(program, quick=quick, place=place)
        self.program = program
        self.centered = centered
        self.multiply = self.machine.multiply
        self.add = self.machine.add

    def store(self, a: Quantity, name: str) -> Quantity:
        """Return a quantity as the program stores it."""
        return self.machine.store(a, self._name(name))

    def _name(self, name: str) -> str:
        return name if self.centered else name.replace("(x - mean)", "x")

    def scale(self, a: Quantity, factor: float, name: str) -> Quantity:
        """Return a times an fp32 number, stored."""
        number = Quantity(np.full((1, 1), float(np.float32(factor))))
        return self.store(self.multiply(a, number), name)

    def divide(self, a: Quantity, count: int, name: str) -> Quantity:
        """Return a / count, stored."""
        return self.store(self.machine.per_count(a, count), name)

    def add_up(self, terms: Quantity, name: str) -> Quantity:
        """Return the sum of each row (rows, 1), stored once, or after each addition."""
        stored = self._name(name)
        if stored in self.program.stored and self.program.row_order is not ColumnOrder.blocked:
            return self.machine.row_sum(terms, stored)
        count = Quantity(np.full((1, 1), float(terms.values.shape[1])))
        mean = self.machine.mean(terms, name, "sum").per_row(name)
        return self.store(self.multiply(mean, count), name)


def input_gradient(
    program: Program, forward: Forward, *, quick: bool, place: Place | None = None
) -> Quantity:
    """Return dx (rows, N), before its own rounding."""
    formulas = {
        TORCH: _composite,
        TENSORFLOW: _composite,
        MLX: _composite,
        POWER: _power,
        MOMENTS: _moments,
        QUOTIENT: _quotient,
        JAX: _jax,
        SQUARE: _square,
        FAST: _fast,
    }
    centered = forward.statistics.mean is not None
    tape = Tape(program, centered=centered, quick=quick, place=place)
    return formulas[program.product](tape, forward)


def negative(a: Quantity) -> Quantity:
    """Return -a."""
    shared = {source: -error for source, error in a.shared.items()}
    return Quantity(-a.values, a.noise, shared, a.slack)


def _composite(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of c = x - mean(x); c rsqrt(mean(c c) + epsilon), by torch, TensorFlow or MLX.

    A product c c gives its gradient to c twice. Without a mean c is x.
    """
    at, count = forward.statistics, forward.x.values.shape[1]
    direct = tape.store(tape.multiply(forward.product, at.rstd), "rstd P")
    through = tape.store(tape.multiply(_share(tape, forward), at.centered), "d square")
    once = tape.store(tape.add(direct, through), "d (x - mean)")
    if not tape.centered:
        return tape.add(once, through)
    centered = tape.store(tape.add(once, through), "d (x - mean)")
    mean = tape.add_up(negative(centered), "d mean")
    return tape.add(centered, tape.divide(mean, count, "d mean / N"))


def _share(tape: Tape, forward: Forward) -> Quantity:
    """Return the gradient of the variance over N (rows, 1)."""
    at, count = forward.statistics, forward.x.values.shape[1]
    weighted = tape.store(tape.multiply(forward.product, at.centered), "P (x - mean)")
    total = tape.add_up(weighted, "sum of P (x - mean)")
    return tape.divide(_of_variance(tape, total, at), count, "d variance / N")


def _power(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of x rsqrt(mean(pow(x, 2)) + epsilon), by torch: the power gives 2 x once."""
    direct = tape.store(tape.multiply(forward.product, forward.statistics.rstd), "rstd P")
    doubled = tape.scale(forward.x, 2.0, "")
    through = tape.store(tape.multiply(_share(tape, forward), doubled), "d square")
    return tape.add(direct, through)


def _square(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of x rsqrt(jnp.mean(jnp.square(x)) + epsilon), by JAX."""
    count = forward.x.values.shape[1]
    direct = tape.store(tape.multiply(forward.product, forward.statistics.rstd), "rstd P")
    share = tape.divide(_variance_gradient(tape, forward), count, "d variance / N")
    doubled = tape.scale(forward.x, 2.0, "")
    return tape.add(direct, tape.store(tape.multiply(share, doubled), "d square"))


def _of_variance(tape: Tape, total: Quantity, at: Moments) -> Quantity:
    """Return the gradient of the variance (rows, 1) from that of rstd.

    By torch it is -1/2 d rstd^3, by TensorFlow -1/2 d rstd rstd^2, by MLX -1/2 d (rstd / (v + e)).
    """
    half = tape.scale(total, -0.5, "")
    if tape.program.product == MLX:
        slope = tape.store(tape.machine.divide(at.rstd, at.shifted), "rstd / (variance + epsilon)")
        return tape.store(tape.multiply(half, slope), "d variance")
    squared = tape.store(tape.multiply(at.rstd, at.rstd), "rstd^2")
    if tape.program.product in (TORCH, POWER):
        cube = tape.store(tape.multiply(squared, at.rstd), "rstd^3")
        return tape.store(tape.multiply(half, cube), "d variance")
    weighted = tape.store(tape.multiply(half, at.rstd), "rstd times the sum")
    return tape.store(tape.multiply(weighted, squared), "d variance")


def _moments(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of tf.nn.batch_normalization after tf.nn.moments.

    The squared difference stops the gradient of its mean. The moments of fp16, and their gradient,
    are fp32's.
    """
    at, count = forward.statistics, forward.x.values.shape[1]
    assert at.mean is not None
    assert at.computed is not None
    factor = tape.store(tape.multiply(at.rstd, forward.gamma), "gamma rstd")
    direct = tape.store(tape.multiply(forward.dy, factor), "d x of the product")
    scaled = tape.store(
        tape.multiply(of_factor(tape.machine, forward.dy, forward.x, at.mean), forward.gamma),
        "d (gamma rstd) gamma",
    )
    variance = _of_variance(tape, tape.add_up(scaled, "d rstd"), at)
    share = tape.divide(variance, count, "d variance / N")
    in_fp32 = tape.program.variance == "x"
    centered = tape.machine.subtract(forward.x, at.computed) if in_fp32 else at.centered
    through = tape.store(tape.multiply(tape.scale(share, 2.0, ""), centered), "d square")
    means = tape.store(tape.multiply(negative(forward.dy), factor), "d mean terms")
    mean = tape.divide(tape.add_up(means, "d mean"), count, "d mean / N")
    if in_fp32:
        return tape.add(direct, tape.store(tape.add(through, mean), "d x of the statistics"))
    return tape.add(tape.store(tape.add(direct, mean), "d x of the statistics"), through)


def of_factor(machine: Machine, dy: Quantity, x: Quantity, mean: Quantity) -> Quantity:
    """Return the gradient of gamma rstd (rows, N) in tf.nn.batch_normalization: dy x - dy mean."""
    direct = machine.store(machine.multiply(dy, x), "dy x")
    shift = machine.store(machine.multiply(dy, mean), "dy mean")
    return machine.store(machine.subtract(direct, shift), "d (gamma rstd)")


def _quotient(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of (x - mean) / sqrt(variance + epsilon) after torch.var_mean.

    div: -grad ((c / root) / root). sqrt: grad / (2 root). var: 2 / N grad (x - mean).
    """
    at, count = forward.statistics, forward.x.values.shape[1]
    assert at.root is not None
    direct = tape.store(tape.machine.divide(forward.product, at.root), "P / root")
    twice = tape.store(tape.machine.divide(forward.normalized, at.root), "x^ / root")
    weighted = tape.store(tape.multiply(negative(forward.product), twice), "P x^ / root")
    total = tape.add_up(weighted, "d root")
    variance = tape.store(tape.machine.divide(total, tape.scale(at.root, 2.0, "")), "d variance")
    share = tape.scale(variance, 2.0 / count, "2 d variance / N")
    through = tape.store(tape.multiply(share, at.centered), "d square")
    mean = tape.add_up(negative(direct), "d mean")
    both = tape.add(through, tape.divide(mean, count, "d mean / N"))
    return tape.add(direct, tape.store(both, "d x of the statistics"))


def _variance_gradient(tape: Tape, forward: Forward) -> Quantity:
    """Return the gradient of the variance (rows, 1), by JAX: rsqrt is -1/2 rstd / (v + eps)."""
    at = forward.statistics
    weighted = tape.store(tape.multiply(at.centered, forward.product), "P (x - mean)")
    total = tape.add_up(weighted, "sum of P (x - mean)")
    name = "rstd / (variance + epsilon)"
    slope = tape.store(tape.machine.divide(at.rstd, at.shifted), name)
    half = tape.scale(slope, -0.5, name)  # exact, but for fp16's subnormals
    return tape.store(tape.multiply(total, half), "d variance")


def _jax(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of (x - mean) rsqrt(jnp.var(x) + epsilon), whose variance is an fp32 value."""
    at, count = forward.statistics, forward.x.values.shape[1]
    assert at.computed is not None
    product = tape.multiply(forward.product, at.rstd)
    direct, added = tape.store(product, "rstd P"), tape.store(product, "rstd P added")
    share = tape.divide(_variance_gradient(tape, forward), count, "")
    deviations = tape.machine.subtract(forward.x, at.computed)
    through = tape.multiply(tape.scale(share, 2.0, ""), deviations)
    through = tape.store(through, "d x of the variance")
    mean = tape.divide(tape.add_up(negative(direct), "d mean"), count, "d mean / N")
    return tape.add(tape.store(tape.add(added, through), "d (x - mean)"), mean)


def _fast(tape: Tape, forward: Forward) -> Quantity:
    """Return dx of jax.nn.standardize: the variance is mean(x^2) - mean^2."""
    at, count = forward.statistics, forward.x.values.shape[1]
    assert at.mean is not None
    product = tape.multiply(forward.product, at.rstd)
    direct, added = tape.store(product, "rstd P"), tape.store(product, "rstd P added")
    variance = _variance_gradient(tape, forward)
    through_mean = tape.multiply(negative(variance), tape.scale(at.mean, 2.0, ""))
    through_mean = tape.store(through_mean, "d mean^2")
    mean = tape.add(tape.add_up(negative(direct), "d mean"), through_mean)
    mean = tape.divide(tape.store(mean, "sum of d mean"), count, "d mean / N")
    share = tape.divide(variance, count, "d variance / N")
    through = tape.store(tape.multiply(share, tape.scale(forward.x, 2.0, "")), "d square")
    return tape.add(tape.store(tape.add(added, through), "d (x - mean)"), mean)


def stored_names(product: str) -> tuple[str, ...]:
    """Return every quantity that a derivation stores, of the forward pass and of the gradient."""
    sums = ("sum of P (x - mean)",) if product in (JAX, FAST) else ()
    return (*STATISTICS_OF[product], *PRODUCTS[product], *sums)


def forward_names(product: str, *, centered: bool) -> tuple[str, ...]:
    """Return what a derivation may store before it sums the terms of dgamma."""
    names = STATISTICS_OF[product] if centered else UNCENTERED_STATISTICS
    extra = OF_FACTOR if product == MOMENTS else ()
    return (*names, *FIRST, *extra)


def normalized(program: Program, at: Moments, columns: Columns) -> Quantity:
    """Return x^ of some columns as the forward pass stores it."""
    machine = Machine(program)
    centered = at.centered.columns(columns)
    if at.root is not None:
        return machine.store(machine.divide(centered, at.root), "x^")
    return machine.store(machine.multiply(centered, at.rstd), "x^")


def derived(*, centered: bool = True) -> tuple[tuple[Program, tuple[str, ...]], ...]:
    """Return (form, stored quantities) of the gradients that libraries derive by themselves."""
    listed = _centered() if centered else _uncentered()
    unique = list(
        {(program.product, names): (program, names) for program, names in listed}.values()
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
    return listed


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
