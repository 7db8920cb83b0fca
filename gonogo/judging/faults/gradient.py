"""The faults of dx = rstd (P - s1 - x^ s2), P = dy gamma."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gonogo.judging.faults import other_rows, padding, scales, statistics
from gonogo.judging.faults import rows as of_rows
from gonogo.judging.faults.fault import SMALL, Fault, Residual, places
from gonogo.judging.limits.detection import without_terms
from gonogo.kernels.layernorm.replay import InputGradient
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import round_to

STEP = 1e-6
"""The relative step of numeric derivatives."""
AS_WELL = 1.5
"""The largest ratio of what wrong means leave to what s1 and s2, with twice the numbers, leave."""
POLISHING = 3
"""Newton's steps from the roots of a cubic, whose small ones eigenvalues give less exactly."""
ROUNDS = 4
"""Rounds in which gamma is fitted: each leaves the part of the sums s1 and s2 to the next."""


def faults(graph: InputGradient, exact: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the faults of dx (rows, N), the fewer fitted numbers the earlier."""
    rows = graph.rows
    x, dy = np.asarray(rows.x, np.float64), np.asarray(rows.dy, np.float64)
    computed = statistics.right(x, rows.epsilon, centered=rows.centered)
    mean = computed.mean if rows.mean is None else rows.mean
    rstd = computed.rstd if rows.rstd is None else rows.rstd
    product = dy * rows.gamma
    normalized = (x - mean) * rstd
    terms = [
        Fault("the last rstd is missing" if term == "rstd" else f"{term} is missing", wrong - exact)
        for term, wrong in without_terms(graph).items()
    ]
    if not rows.centered:
        effect = np.broadcast_to(-rstd * product.mean(axis=1, keepdims=True), exact.shape)
        terms.append(Fault("s1 is subtracted, as in LayerNorm", effect))
    yield from terms
    of_1 = _gradient(dy, normalized, rstd, centered=rows.centered)
    yield from scales.conventions(of_1, exact, residual)
    sums = {"s2": (product * normalized, normalized)}
    if rows.centered:
        sums = {"s1": (product, np.ones((1, 1))), **sums}
    yield from _sums(sums, rstd, residual)
    s1, s2 = (a.mean(axis=1, keepdims=True) for a in (product, product * normalized))
    yield from padding.of_gradient(s1 if rows.centered else None, s2, rstd, normalized)
    if rows.centered:
        yield from _of_linear(x, product, mean, normalized, rstd, residual)
    given = statistics.Statistics("", mean, rstd) if rows.is_given else None
    for wrong in statistics.wrong_or_given(x, rows.epsilon, given, centered=rows.centered):
        with np.errstate(invalid="ignore"):
            changed = _gradient(
                product, (x - wrong.mean) * wrong.rstd, wrong.rstd, centered=rows.centered
            )
        yield Fault(wrong.words, changed - exact)
    if rows.centered:
        yield from _recentered(product, mean, normalized, rstd, residual)
    for fault in terms:
        yield from of_rows.in_rows(fault, residual)
    yield from of_rows.stale(exact, residual)
    yield from other_rows.statistics(
        lambda row, mean, rstd: _gradient(
            product[row], (x[row] - mean) * rstd, rstd, centered=rows.centered
        ),
        np.asarray(mean, np.float64),
        np.asarray(rstd, np.float64),
        exact,
        residual,
    )
    factors = of_rows.common(exact, residual)

    def of_epsilon(value: float) -> Array:
        other = statistics.right(x, value, centered=rows.centered)
        normalized = (x - other.mean) * other.rstd
        return _gradient(product, normalized, other.rstd, centered=rows.centered) - exact

    fitted = None
    if not rows.is_given:
        fitted = statistics.fitted_epsilon(of_epsilon, rows.epsilon, residual)
    yield from statistics.likelier_of(factors, fitted, residual)
    off_gamma = _gamma(dy, normalized, rstd, residual, centered=rows.centered)
    is_gamma = residual.relates(exact, off_gamma.effect).all()
    # the fewer numbers are fitted, the more an equally good fit says
    if is_gamma and dy.shape[1] < len(x):
        yield off_gamma
    yield from of_rows.factors(exact, residual)
    count = residual.rows
    patterns = {"s1": np.broadcast_to(rstd, x.shape), "s2": rstd * normalized}
    if not rows.centered:
        del patterns["s1"]
    for name, pattern in patterns.items():
        off = residual.per_row(pattern)
        yield Fault(f"{name} is off in {places('row', off)}", off * pattern, count)
    both = residual.two_per_row(np.broadcast_to(rstd, x.shape), rstd * normalized)
    if rows.centered:
        of_means = _of_means(product, normalized, rstd, residual)
        left, least = (residual.without(e).energy for e in (of_means.effect, both))
        if left <= AS_WELL * least:  # else s1 or s2 is off, too
            yield of_means
    if not rows.is_given:
        pattern = _of_rstd(x, product, mean, rstd, exact, centered=rows.centered)
        off = residual.per_row(pattern)  # nearly a factor of dx
        off = np.where(residual.relates(exact, off * pattern, 1), off, 0.0)
        words = f"the rstd is off in {places('row', off)}"
        yield Fault(words, off * pattern, count, is_coherent=False)
    if is_gamma and dy.shape[1] >= len(x):
        yield off_gamma
    if not rows.centered:
        return
    yield Fault("s1 and s2 of the rows are off", both, 2 * count)


def _gradient(product: Array, normalized: Array, rstd: Array, *, centered: bool) -> Array:
    s1 = product.mean(axis=-1, keepdims=True) if centered else np.zeros((1, 1))
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    return np.asarray(rstd * (product - s1 - normalized * s2))


def _of_linear(
    x: Array, product: Array, mean: Array, normalized: Array, rstd: Array, residual: Residual
) -> Iterator[Fault]:
    """Yield the faults of s1 and s2 in the form rstd P + b x + c, which ATen has.

    There x^ s2 comes from E[P x] - s1 mean: a wrong s1 makes an error along x^, too, and s2 sums
    P x.
    """
    sums = {
        "s1": (product, 1.0 - mean * rstd * normalized),
        "s2": (product * x * rstd, normalized),
    }
    for name, (summed, pattern) in sums.items():
        total = summed.mean(axis=1, keepdims=True)
        yield Fault(f"{name} is missing", rstd * total * pattern)
    yield from _sums(sums, rstd, residual)


def _sums(
    sums: Mapping[str, tuple[Array, Array]], rstd: Array, residual: Residual
) -> Iterator[Fault]:
    """Yield the faults of s1 and s2.

    sums: name -> the terms of the sum (rows, N), and what dx subtracts for each 1 of it, over rstd.
    """
    for name, (summed, pattern) in sums.items():
        count, features = summed.shape
        total = summed.mean(axis=1, keepdims=True)
        yield Fault(f"{name} is subtracted twice", -rstd * total * pattern)
        yield Fault(f"{name} has the wrong sign", 2 * rstd * total * pattern)
        if features > 1:
            yield Fault(f"{name} divides by N - 1", -rstd * total / (features - 1) * pattern)
        off = residual.per_row(np.broadcast_to(rstd * pattern, summed.shape))
        for width in statistics.left_out(features, statistics.tail(summed / features, off)):
            missing = summed[:, features - width :].sum(axis=1, keepdims=True) / features
            words = f"{name} leaves out the last {width} columns"
            yield Fault(words, rstd * missing * pattern)
        for shift, place in ((1, "before"), (-1, "after")):
            if count > 1:
                words = f"each row has the {name} of the row {place} it"
                yield Fault(words, rstd * (total - np.roll(total, shift, axis=0)) * pattern)


def _gamma(
    dy: Array, normalized: Array, rstd: Array, residual: Residual, *, centered: bool
) -> Fault:
    """Return the fault of a gamma that is off, column by column; dx is linear in gamma."""
    direct = rstd * dy
    off = np.zeros((1, dy.shape[1]))
    effect = np.zeros_like(residual.error)
    for _ in range(ROUNDS):
        off = off + residual.without(effect).per_column(direct)
        effect = _gradient(dy * off, normalized, rstd, centered=centered)
    return Fault(f"gamma is off in {places('column', off)}", effect, dy.shape[1])


def _of_means(product: Array, normalized: Array, rstd: Array, residual: Residual) -> Fault:
    """Return the fault of a mean for each row, in the product with x^ as well as in x^ itself.

    A mean that is off by -c / rstd adds c to x^, and c s1 to s2. So dx changes by
    -rstd (c s2 + c^2 s1 + c s1 x^): along 1 and along x^, as errors of s1 and s2 do, by one number.
    """
    s1 = product.mean(axis=1)
    s2 = (product * normalized).mean(axis=1)
    u, v = np.broadcast_to(rstd, product.shape), rstd * normalized
    a, b, c = ((residual.weight * f).sum(axis=1) for f in (u * u, u * v, v * v))
    p, q = ((residual.weight * residual.error * f).sum(axis=1) for f in (u, v))
    # what is left is a polynomial of degree 4 in the number, with a minimum at a root of its slope
    straight = s2**2 * a + 2.0 * s1 * s2 * b + s1**2 * c
    square = 3.0 * s1 * (s2 * a + s1 * b)
    terms = (s2 * p + s1 * q, straight + 2.0 * s1 * p, square, 2.0 * s1**2 * a)
    off = _least(terms, -terms[0] / np.maximum(straight, SMALL))[:, None]
    s1, s2 = s1[:, None], s2[:, None]
    effect = -rstd * off * (s2 + off * s1 + s1 * normalized)
    return Fault(f"the mean is off in {places('row', off / rstd)}", effect, residual.rows)


def _recentered(
    product: Array, mean: Array, normalized: Array, rstd: Array, residual: Residual
) -> Iterator[Fault]:
    """Yield the faults of a known wrong mean in kernels that subtract the mean of x^ again.

    A gradient that is derived step by step has that term, which is 0 with the right mean. With a
    wrong one only x^ c s1 is left of what _of_means describes, so it would pass for s2.
    """
    through = rstd * rstd * normalized * product.mean(axis=1, keepdims=True)
    stored = round_to(mean, "bf16").astype(np.float64)
    yield Fault("the mean is stored in bf16", (stored - mean) * through)
    for shift, place in ((1, "before"), (-1, "after")):
        if len(mean) > 1:
            other = (np.roll(mean, shift, axis=0) - mean) * through
            yield Fault(f"each row has the mean of the row {place} it", other)
            fault = Fault(f"the mean of the row {place} it is read", other)
            yield from of_rows.in_rows(fault, residual)


def _least(terms: Sequence[Array], start: Array) -> Array:
    """Return where polynomials of degree 4 are least (rows,), from their slopes' coefficients.

    terms: of 1, t, t^2 and t^3, each (rows,). start: a value that is tried, too.
    """
    companion = np.zeros((len(start), 3, 3))
    companion[:, 1, 0] = companion[:, 2, 1] = 1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        column = -np.stack(terms[:3], axis=1) / terms[3][:, None]
    is_cubic = np.asarray(np.isfinite(column).all(axis=1))
    companion[:, :, 2] = np.where(is_cubic[:, None], column, 0.0)
    roots = np.concatenate([np.linalg.eigvals(companion).real, start[:, None]], axis=1)
    k1, k2, k3, k4 = (term[:, None] for term in terms)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(POLISHING):
            slope = k1 + roots * (k2 + roots * (k3 + roots * k4))
            curvature = k2 + roots * (2.0 * k3 + roots * 3.0 * k4)
            step = slope / np.where(curvature > 0.0, curvature, np.inf)
            roots = roots - np.where(np.isfinite(step), step, 0.0)
        height = roots * (k1 + roots * (k2 / 2.0 + roots * (k3 / 3.0 + roots * k4 / 4.0)))
    best = np.argmin(np.where(np.isfinite(height), height, np.inf), axis=1)
    return np.asarray(np.take_along_axis(roots, best[:, None], axis=1)[:, 0])


def _of_rstd(
    x: Array, product: Array, mean: Array, rstd: Array, exact: Array, *, centered: bool
) -> Array:
    """Return what a small error of each row's rstd, relative to it, does to dx (rows, N)."""
    wider = rstd * (1.0 + STEP)
    scaled = _gradient(product, (x - mean) * wider, wider, centered=centered) - exact
    return np.asarray(scaled / STEP)
