"""The replay of gradients that a library derives from single operations, each of which stores.

The formulas are those of the libraries' own derivative rules: torch's derivatives.yaml and
FunctionsManual.cpp, JAX's jvp rules of mul, div, rsqrt and square, transposed. Gradients of a value
that is used twice are added in the order in which the libraries visit the operations: last one
first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gonogo.kernels.layernorm.derivations import (
    FAST,
    JAX,
    MLX,
    MOMENTS,
    POWER,
    QUOTIENT,
    SQUARE,
    TENSORFLOW,
    TORCH,
)
from gonogo.kernels.normalization.moments import Moments
from gonogo.numerics.replay.graph import Columns
from gonogo.numerics.replay.narrow_sums import Place
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Machine, Quantity


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

    div: -grad ((c / root) / root). sqrt: grad / (2 root). var: 2 / N grad (x - mean), whose mean is
    computed anew; compiled, it isn't stored.
    """
    at, count = forward.statistics, forward.x.values.shape[1]
    assert at.root is not None
    assert at.computed is not None
    in_fp32 = "x - mean" not in tape.program.stored
    centered = tape.machine.subtract(forward.x, at.computed) if in_fp32 else at.centered
    direct = tape.store(tape.machine.divide(forward.product, at.root), "P / root")
    twice = tape.store(tape.machine.divide(forward.normalized, at.root), "x^ / root")
    weighted = tape.store(tape.multiply(negative(forward.product), twice), "P x^ / root")
    total = tape.add_up(weighted, "d root")
    variance = tape.store(tape.machine.divide(total, tape.scale(at.root, 2.0, "")), "d variance")
    share = tape.scale(variance, 2.0 / count, "2 d variance / N")
    through = tape.store(tape.multiply(share, centered), "d square")
    mean = tape.add_up(negative(direct), "d mean")
    both = tape.add(through, tape.divide(mean, count, "d mean / N"))
    return tape.add(direct, tape.store(both, "d x of the statistics"))


def _variance_gradient(tape: Tape, forward: Forward) -> Quantity:
    """Return the gradient of the variance (rows, 1), by JAX: rsqrt is -1/2 rstd / (v + eps)."""
    at = forward.statistics
    weighted = tape.store(tape.multiply(at.centered, forward.product), "P (x - mean)")
    total = tape.add_up(weighted, "sum of P (x - mean)")
    name = "rstd / (variance + epsilon)"
    divided = at.rstd if "rstd divided" in tape.program.stored else at.inverse
    slope = tape.store(tape.machine.divide(divided, at.shifted), name)
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


def normalized(program: Program, at: Moments, columns: Columns) -> Quantity:
    """Return x^ of some columns as the forward pass stores it."""
    machine = Machine(program)
    centered = at.centered.columns(columns)
    if at.root is not None:
        return machine.store(machine.divide(centered, at.root), "x^")
    return machine.store(machine.multiply(centered, at.rstd), "x^")
