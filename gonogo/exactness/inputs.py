"""The exact inputs of a norm.

A row is x = S (c + M): integers c and M, and a power of two S. Its c sum to 0, but for RMSNorm, and
have a mean square for which variance + epsilon is a power of four. So rstd is a power of two, and
sums are sums of integers below 2^24. One row in four is *small*: there, epsilon is a quarter of
variance + epsilon. In the others it is too small to have an effect.

Right values lie where small errors show, though 16 bits are stored:

- y with beta: where |x^| = 1, |beta| is half a unit in the last place of |gamma x^| less 2^-16.
- y of RMSNorm: gamma x^ is a product of two integers, as close to a tie.
- dx: with dy gamma = s1 + s2 x^ + q, where q cancels in pairs of equal c, dx is 0 where q is.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from math import ceil, isqrt, log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import Doubles, format_named
from gonogo.kernels.registry import kernel_of

Integers = NDArray[np.int64]
Random = np.random.RandomState
"""NumPy's frozen generator: its numbers are the same in every version."""
NORMS = (
    *("layernorm_fw", "layernorm_bw", "layernorm_bw_own", "groupnorm_fw", "batchnorm_fw"),
    *("rmsnorm_fw", "rmsnorm_bw", "rmsnorm_bw_own"),
)
"""The kernels that have exact inputs."""
EPSILON = 2.0**-18
"""About the usual 1e-5, with an exact root, and squares of large rows below 65504."""
ABSORBED = 13
"""log2 of sqrt(variance / epsilon) from which epsilon is an eighth of a step of fp32 at most."""
LIMIT = 2**24
"""Integers up to here are exact in fp32."""
PATTERNS = 64
"""Different rows of c; taller matrices repeat them with other S and M."""
SIZES = (0, 8, 0, 2, 6, 1, 3)
"""Sizes of c in every third column; in most others it is 4, where |x^| = 1."""
MEANS = (3, -2, 5, -6, 7, -3, 2, -5)
"""M of rows, as far as the squares of c + M add up exactly."""
WIDE = np.arange(129, 256, 2)
"""Sizes of RMSNorm's c that are tried in each column: eight bits, and no tie."""
NEAR = 5e-5
"""The distance of its products from a tie, relative to them, up to which such sizes are taken."""


def exact_inputs(
    kernel: str,
    shape: tuple[int, ...],
    form: str,
    seed: int,
    epsilon: float = EPSILON,
    num_groups: int = 1,
) -> tuple[dict[str, Doubles], dict[str, Any]]:
    """Return exact inputs of a norm of gonogo.kernels, and the parameters for them, by name.

    Args:
        kernel: its name, one of NORMS.
        shape: that of x.
        form: the format of the tensors: fp32, bf16 or fp16.
        seed: other seeds give other inputs.
        epsilon: without an exact root, small rows aren't exact; a backward pass has none then.
        num_groups: of group norm.

    Raises ValueError for another kernel or format, and for rows of 1 or 3 values around their mean.
    """
    if kernel not in NORMS or form not in ("fp32", "bf16", "fp16"):
        known = f"in fp32, bf16 and fp16 for {', '.join(NORMS)}"
        raise ValueError(f"there are no exact inputs of {kernel!r} in {form!r}, only {known}")
    names = inspect.signature(kernel_of(kernel).reference).parameters
    random = Random(np.random.MT19937(np.random.SeedSequence(seed)))
    is_centered, is_backward = not kernel.startswith("rmsnorm"), "dy" in names
    groups = {"groupnorm_fw": shape[0] * num_groups, "batchnorm_fw": shape[1]}
    rows = groups.get(kernel, prod(shape[:-1]))
    count, channels = prod(shape) // rows, shape[1 if kernel in groups else -1]
    bits = 8 if form == "fp32" else format_named(form).precision
    gamma = scale = random.choice((1, -1), channels) * random.choice((0.5, 1.0, 2.0), channels)
    if not is_backward and is_centered:  # five bits: those of gamma c are the eight of bf16
        gamma = scale * random.choice(range(25, 32), channels) / 16
    elif not is_backward:
        gamma = scale * (
            1 + (2 * random.randint(2 ** (bits - 2), size=channels) + 1) / 2 ** (bits - 1)
        )
    factors = None if is_centered or is_backward else gamma
    root, patterns = _patterns(random, rows, count, bits, is_centered, factors)
    is_small = (np.arange(rows) % 4 == 1) & ("epsilon" in names) & (len(patterns[1]) > 0)
    is_small &= not is_backward or log2(epsilon) % 2 == 0  # dgamma adds all rows
    c = np.array([patterns[int(is_small[at])][at % PATTERNS] for at in range(rows)])
    least = max(ceil(ABSORBED + log2(epsilon) / 2), 3)
    unit = 2.0**least / root * _by_row(random, rows, (1, 2, 4))
    unit[is_small] = 2.0 ** (round(log2(epsilon) / 2) + 1) / root
    most = isqrt(max(LIMIT // count - root**2, 0)) if is_centered else 0
    mean = _by_row(random, rows, [mean for mean in MEANS if abs(mean) <= most] or [0])
    x = unit * (c + mean)
    offset = 2.0**-bits - random.choice((1, 1, 1, 2, 4, 8), channels) * 2.0**-16
    given = {
        "x": x.reshape(shape),
        "gamma": gamma,
        "beta": random.choice((1, -1), channels) * scale * offset,
        "epsilon": epsilon,
        "num_groups": num_groups,
    }
    if kernel == "batchnorm_fw":
        given["x"] = np.moveaxis(x.reshape(shape[1], shape[0], *shape[2:]), 0, 1)
    if is_backward:
        given["dy"] = _products(random, c, is_centered).reshape(shape) / gamma
        given["mean"] = (unit * mean).reshape(*shape[:-1], 1)
        given["rstd"] = 1 / (unit * root).reshape(*shape[:-1], 1)
    tensors = {name: given[name] for name in names if isinstance(given[name], np.ndarray)}
    return tensors, {name: given[name] for name in names if name not in tensors}


def _by_row(random: Random, rows: int, options: Sequence[float]) -> Doubles:
    """Return an option for each row, (rows, 1); another one for the last than for the first."""
    index = random.randint(len(options), size=rows)
    if rows > 1:
        index[-1] = (index[0] + 1) % len(options)
    return np.asarray(options, np.float64)[index, None]


def _patterns(
    random: Random, rows: int, count: int, bits: int, is_centered: bool, gamma: Doubles | None
) -> tuple[int, tuple[list[Integers], list[Integers]]]:
    """Return the root R of c's mean square, and the c of large rows and of small ones.

    Those have mean squares of R^2 and 3/4 R^2. gamma: by which products of large rows are close to
    a tie of so many bits.
    """
    root = 4 if gamma is None else 2 ** min(7, isqrt(LIMIT // count).bit_length() - 1)
    patterns: tuple[list[Integers], list[Integers]] = ([], [])
    for kind, total in enumerate((root**2 * count, 3 * root**2 // 4 * count)):
        for _ in range(min(rows, PATTERNS)):
            order, some = random.permutation(count), random.choice(SIZES, -(-count // 6))
            if gamma is not None and kind == 0:
                tried = random.choice(WIDE, count)
                product = np.abs(gamma) * tried
                half = 2.0 ** (np.frexp(product)[1] - bits - 1)
                near = np.abs(product % (2 * half) - half) <= NEAR * product
                order = order[np.argsort(~near[order], kind="stable")]
                some = tried[order[: near.sum()]]
            c = np.zeros(count, np.int64)
            share = 2 if is_centered else 1
            sizes = _magnitudes(total // share, count // share, some)
            if sizes is None:
                break
            if is_centered:
                c[order] = [*sizes, *-sizes, *(0,) * (count % 2)]
            else:
                c[order] = sizes * random.choice((1, 1, 1, -1), count)
            patterns[kind].append(c)
    if not patterns[0]:
        raise ValueError(f"{count} values around a mean have no exact inputs: take 2, or 4 or more")
    return root, patterns


def _magnitudes(total: int, count: int, some: Integers) -> Integers | None:
    """Return integers from 0 on, (count,), whose squares sum to `total`; None if there are none.

    some: those that come first, as many as half of the total has room for. Nearly all of the
    others are equal, or differ by 1. Four always complete the sum, by Lagrange's theorem.
    """
    given = some[np.cumsum(np.square(some)) <= total // 2][: max(count - 4, 0)]
    free, rest = count - len(given), total - int(np.square(given).sum())
    if free < 4:
        few = _squares(total, count)
        return None if few is None else np.array(few, np.int64)
    level = isqrt(rest // free)
    raised = min(free - 4, (rest - free * level**2) // (2 * level + 1))
    equal = level + (np.arange(free - 4) < raised)
    last = _squares(rest - int(np.square(equal).sum()), 4) or ()
    return np.concatenate([given, equal, last]).astype(np.int64)


def _squares(total: int, count: int, largest: int = LIMIT) -> tuple[int, ...] | None:
    """Return integers from 0 on whose squares sum to `total`, similar ones; None if none do."""
    if count == 0:
        return None if total else ()
    least = isqrt((total - 1) // count) + 1 if total else 0
    for first in range(least, min(isqrt(total), largest) + 1):
        others = _squares(total - first * first, count - 1, first)
        if others is not None:
            return (first, *others)
    return None


def _products(random: Random, c: Integers, is_centered: bool) -> Doubles:
    """Return dy gamma of rows of c, (rows, N): s1 + s2 x^ + q."""
    rows, count = c.shape
    product = _by_row(random, rows, (1, -2, 3, -1, 2, -3)) * is_centered
    product = product + _by_row(random, rows, (1, -1, 2, -2)) * c
    for row in range(rows):
        order = np.lexsort((random.permutation(count), c[row]))
        equal, first = c[row, order], np.arange(count - 1)
        is_pair = (first - np.searchsorted(equal, equal[:-1])) % 2 == 0
        first = first[is_pair & (equal[:-1] == equal[1:])]
        q = random.choice((0, 0, 0, 0, 1, 3, 6), len(first))  # few: dx is to be 0 in most columns
        product[row, order[first]] += q
        product[row, order[first + 1]] -= q
    return product
