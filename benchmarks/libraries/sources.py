"""Readable kernels in NumPy, right ones, each with named edits that make it wrong.

A source is one function per kind. `step.edit` names the edit, None for the right kernel. What an
arithmetic stores goes through `step.store(name, value)`: it rounds where the source stores that
value in 16 bits. The same functions run in float64 without rounding, which shows whether an edit
is a no-op in exact arithmetic.

Sources *fp32-inside* store nothing: fp32 inside, one rounding of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Sum = Callable[[Array], Array]
Rounding = Callable[[Array], Array]

TILE = 32


def pairwise(terms: Array) -> Array:
    """Return sums along the last axis in NumPy's blocks."""
    total: Array = terms.sum(-1, keepdims=True)
    return total


def running(terms: Array) -> Array:
    """Return sums along the last axis, one term after the other."""
    return np.add.accumulate(terms, -1)[..., -1:]


def lanes(terms: Array) -> Array:
    """Return sums along the last axis in 8 lanes, which are added in pairs at the end."""
    padding = -terms.shape[-1] % 8
    padded = np.pad(terms, [(0, 0)] * (terms.ndim - 1) + [(0, padding)])
    partial = np.add.accumulate(padded.reshape(*terms.shape[:-1], -1, 8), -2)[..., -1, :]
    while partial.shape[-1] > 1:
        partial = partial[..., ::2] + partial[..., 1::2]
    return partial


def updated(x: Array) -> tuple[Array, Array]:
    """Return mean and variance along the last axis by Welford's updates, in a single lane."""
    mean, squares = np.zeros_like(x[..., :1]), np.zeros_like(x[..., :1])
    for place in range(x.shape[-1]):
        column = x[..., place : place + 1]
        off = column - mean
        mean = mean + off / x.dtype.type(place + 1)
        squares = squares + off * (column - mean)
    return mean, squares / x.dtype.type(x.shape[-1])


SUMS: Mapping[str, Sum] = {"pairwise": pairwise, "running": running, "lanes": lanes}


@dataclass(frozen=True)
class Step:
    """How a source computes: its edit, its order of sums, and the values that it stores.

    Attributes:
        edit: the name of the edit, or None.
        total: sums along the last axis.
        stored: names of the values that are rounded to the format.
        rounding: rounds to the format; without it the step computes exactly (float64).
        coarse: rounds to bf16, for the edits that store a statistic there.
        updates: whether mean and variance are updated term by term, as Welford's algorithm does.
    """

    edit: str | None
    total: Sum
    stored: frozenset[str]
    rounding: Rounding | None
    coarse: Rounding | None
    updates: bool = False

    def store(self, name: str, value: Array) -> Array:
        """Return the value as the source stores it."""
        if self.rounding is not None and name in self.stored:
            return self.rounding(value)
        return value

    def is_edit(self, name: str) -> bool:
        """Return whether the source has this edit."""
        return self.edit == name

    def average(self, terms: Array, name: str) -> Array:
        """Return the mean of a row; edits leave the last columns out, or divide by N - 1."""
        n = terms.shape[-1]
        terms = self.partial(terms, name)
        divisor = n - 1 if self.is_edit(f"{name}-over-n-minus-1") else n
        average: Array = self.total(terms) / terms.dtype.type(divisor)
        return average

    def partial(self, terms: Array, name: str) -> Array:
        """Return the terms of a sum without those that the edit leaves out."""
        if self.is_edit(f"{name}-without-last-tile"):
            n = terms.shape[-1]
            return terms[..., : max(n - TILE, n // 2)]
        if self.is_edit(f"{name}-without-last-3"):
            return terms[..., :-3]
        return terms

    def statistic(self, name: str, value: Array) -> Array:
        """Return a mean or a variance as it is stored; edits round it to bf16."""
        if self.is_edit(f"{name}-in-bf16") and self.coarse is not None:
            return self.coarse(value)
        return self.store(name, value)

    def inverse_root(self, variance: Array, epsilon: float) -> Array:
        """Return 1 / sqrt(variance + epsilon) with the edits of epsilon and rstd."""
        number = variance.dtype.type
        if self.is_edit("epsilon-missing"):
            epsilon = 0.0
        elif self.is_edit("epsilon-wrong"):
            epsilon = 1e-6 if epsilon > 5e-6 else 1e-5
        rstd = self.store("rstd", 1 / np.sqrt(self.store("shifted", variance + number(epsilon))))
        if self.is_edit("rstd-off-0.4%"):
            rstd = rstd * number(1.004)
        elif self.is_edit("rstd-off-0.1%"):
            rstd = rstd * number(1.001)
        if self.is_edit("rstd-of-next-row"):
            return np.roll(rstd, 1, 0)
        return rstd

    def scale(self, gamma: Array) -> Array:
        """Return gamma, or an edited one."""
        if self.is_edit("gamma-missing"):
            return np.ones_like(gamma)
        if self.is_edit("gamma-tile-shifted"):
            edited = gamma.copy()
            start = TILE if gamma.shape[-1] > 2 * TILE else 0
            stop = min(start + TILE, gamma.shape[-1])
            edited[start:stop] = np.roll(gamma, -1)[start:stop]
            return edited
        return gamma

    def shift(self, beta: Array) -> Array:
        """Return beta, or an edited one."""
        if self.is_edit("beta-missing"):
            return np.zeros_like(beta)
        if self.is_edit("beta-tile-sign"):
            edited = beta.copy()
            edited[-TILE:] *= -1
            return edited
        return beta

    def result(self, values: Array, name: str) -> Array:
        """Return an output with the edits of its rows and of its size, rounded to the format."""
        values = values.copy()
        if self.is_edit(f"{name}-off-0.1%"):
            values *= values.dtype.type(1.001)
        if self.is_edit("stale-row"):
            row = values.shape[0] // 2
            values[row] = values[row - 1]
        if self.rounding is None:
            return self.stepped(values, 2.0**-20)
        coarse = self.coarse is not None and (self.rounding(values) != values).any()
        return self.stepped(self.rounding(values), 2.0**-7 if coarse else 2.0**-20)

    def stepped(self, values: Array, step: float) -> Array:
        """Return an output with the edits that move a row, a tile or 1 % of it by a step or two."""
        places = np.zeros(values.shape, bool)
        if self.is_edit("a-row-a-step"):
            places[values.shape[0] // 2] = True
        elif self.is_edit("a-tile-a-step"):
            places[:TILE, ..., :TILE] = True
        elif self.is_edit("few-a-step"):
            places.reshape(-1)[::97] = True
        moved = values * values.dtype.type(1 + step)
        moved = moved if self.rounding is None else self.rounding(moved)
        return np.where(places, moved, values)


Source = Callable[[Mapping[str, Array], float, int, Step], dict[str, Array]]


def _moments(x: Array, epsilon: float, step: Step) -> tuple[Array, Array, Array]:
    """Return mean, x - mean and rstd of each row."""
    if step.updates:
        mean, variance = updated(x)
        return mean, x - mean, step.inverse_root(variance, epsilon)
    mean = step.statistic("mean", step.average(x, "mean"))
    centered = step.store("centered", x - mean)
    if step.is_edit("mean-not-subtracted"):
        centered = x
    elif step.is_edit("mean-subtracted-twice"):
        centered = centered - mean
    deviations = x if step.is_edit("variance-about-0") else x - mean
    if "centered" in step.stored and not step.is_edit("variance-about-0"):
        deviations = step.store("centered", deviations)
    squares = step.store("square", deviations * deviations)
    variance = step.statistic("variance", step.average(squares, "variance"))
    return mean, centered, step.inverse_root(variance, epsilon)


def layernorm_fw(
    t: Mapping[str, Array], epsilon: float, groups: int, step: Step
) -> dict[str, Array]:
    """Return y = gamma (x - mean) rstd + beta."""
    _, centered, rstd = _moments(t["x"], epsilon, step)
    normalized = centered if step.is_edit("rstd-missing") else centered * rstd
    scaled = step.store("scaled", step.store("xhat", normalized) * step.scale(t["gamma"]))
    return {"y": step.result(scaled + step.shift(t["beta"]), "y")}


def rmsnorm_fw(t: Mapping[str, Array], epsilon: float, groups: int, step: Step) -> dict[str, Array]:
    """Return y = gamma x rstd, rstd = 1/sqrt(mean(x^2) + epsilon)."""
    x = t["x"]
    if step.is_edit("mean-subtracted"):
        x = x - step.average(x, "mean")
    squares = step.store("square", x * x)
    variance = step.statistic("variance", step.average(squares, "variance"))
    rstd = step.inverse_root(variance, epsilon)
    normalized = x if step.is_edit("rstd-missing") else x * rstd
    return {"y": step.result(step.store("xhat", normalized) * step.scale(t["gamma"]), "y")}


def groupnorm_fw(
    t: Mapping[str, Array], epsilon: float, groups: int, step: Step
) -> dict[str, Array]:
    """Return group norm: LayerNorm over each sample's groups of channels."""
    shape = t["x"].shape
    x = t["x"]
    if step.is_edit("groups-shifted-by-a-channel"):
        x = np.roll(x, 1, 1)
    if step.is_edit("half-groups"):
        groups *= 2 if shape[1] % (2 * groups) == 0 else 1
    rows = x.reshape(shape[0] * groups, -1)
    _, centered, rstd = _moments(rows, epsilon, step)
    normalized = centered if step.is_edit("rstd-missing") else centered * rstd
    xhat = step.store("xhat", normalized).reshape(shape)
    if step.is_edit("groups-shifted-by-a-channel"):
        xhat = np.roll(xhat, -1, 1)
    channels = (1, -1) + (1,) * (len(shape) - 2)
    scaled = step.store("scaled", xhat * step.scale(t["gamma"]).reshape(channels))
    y = scaled + step.shift(t["beta"]).reshape(channels)
    return {"y": step.result(y.reshape(shape[0] * groups, -1), "y").reshape(shape)}


def layernorm_bw(
    t: Mapping[str, Array], epsilon: float, groups: int, step: Step
) -> dict[str, Array]:
    """Return dx = rstd (P - s1 - x^ s2), P = dy gamma, and the sums of dy x^ and of dy."""
    _, centered, rstd = _moments(t["x"], epsilon, step)
    xhat = step.store("xhat", centered * rstd)
    p = step.store("p", t["dy"] * step.scale(t["gamma"]))
    s1 = _first_sum(p, step)
    s2 = _second_sum(p, xhat, step)
    inside = step.store("difference", p - s1) - step.store("product", xhat * s2)
    dx = inside if step.is_edit("outer-rstd-missing") else inside * rstd
    return {"dx": step.result(dx, "dx")} | _columns(t["dy"], centered, xhat, step)


def aten_bw(t: Mapping[str, Array], epsilon: float, groups: int, step: Step) -> dict[str, Array]:
    """Return the same gradients in the form dx = a dy gamma + b x + c."""
    x, dy = t["x"], t["dy"]
    number = x.dtype.type
    mean, centered, rstd = _moments(x, epsilon, step)
    p = dy * step.scale(t["gamma"])
    n = number(x.shape[-1])
    sum_p = _first_sum(p, step) * n
    sum_px = _second_sum(p, x, step) * n
    b = (sum_p * mean - sum_px) * rstd * rstd * rstd / n
    if step.is_edit("outer-rstd-missing"):
        b = b / rstd
    c = -b * mean - sum_p * rstd / n
    dx = (p if step.is_edit("outer-rstd-missing") else rstd * p) + b * x + c
    return {"dx": step.result(dx, "dx")} | _columns(dy, centered, centered * rstd, step)


def rmsnorm_bw(t: Mapping[str, Array], epsilon: float, groups: int, step: Step) -> dict[str, Array]:
    """Return dx = rstd (P - x^ s2) and the sums of dy x^."""
    x = t["x"]
    squares = step.store("square", x * x)
    variance = step.statistic("variance", step.average(squares, "variance"))
    rstd = step.inverse_root(variance, epsilon)
    xhat = step.store("xhat", x * rstd)
    p = step.store("p", t["dy"] * step.scale(t["gamma"]))
    inside = p - step.store("product", xhat * _second_sum(p, xhat, step))
    dx = inside if step.is_edit("outer-rstd-missing") else inside * rstd
    columns = _columns(t["dy"], x, xhat, step)
    return {"dx": step.result(dx, "dx"), "dgamma": columns["dgamma"]}


def _first_sum(p: Array, step: Step) -> Array:
    s1 = step.store("s1", step.average(p, "s1"))
    if step.is_edit("s1-missing"):
        return np.zeros_like(s1)
    return 2 * s1 if step.is_edit("s1-twice") else s1


def _second_sum(p: Array, factor: Array, step: Step) -> Array:
    s2 = step.store("s2", step.average(step.store("p-xhat", p * factor), "s2"))
    if step.is_edit("s2-missing"):
        return np.zeros_like(s2)
    return np.roll(s2, 1, 0) if step.is_edit("s2-of-next-row") else s2


def _columns(dy: Array, centered: Array, xhat: Array, step: Step) -> dict[str, Array]:
    """Return dgamma and dbeta."""
    factor = centered if step.is_edit("dgamma-without-rstd") else xhat
    terms = {"dgamma": dy * factor, "dbeta": dy}
    outputs = {}
    for name, rows in terms.items():
        if step.is_edit(f"{name}-without-last-row"):
            rows = rows[:-1]
        total = np.zeros(rows.shape[-1], rows.dtype)
        for row in rows.reshape(-1, rows.shape[-1]):
            total = step.store("column", total + row)
        if step.is_edit(f"{name}-off-0.1%"):
            total = total * total.dtype.type(1.001)
        outputs[name] = total if step.rounding is None else step.rounding(total)
    return outputs
