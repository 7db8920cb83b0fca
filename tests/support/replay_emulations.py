"""Kernels in NumPy's float32 that round where a library stores, written without the replay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.formats import round_to

Floats = NDArray[np.float32]
RowSums = Callable[[NDArray[np.floating], str], Floats]
WINDOW = 32


def inputs(rows: int, width: int, form: str, seed: int = 0) -> dict[str, Floats]:
    """Return x, gamma, beta and dy of a form: x = .3 + N(0, 1), gamma = N(1, .5)."""
    draw = np.random.default_rng(seed).standard_normal
    return {
        "x": round_to(0.3 + draw((rows, width)), form),
        "gamma": round_to(1.0 + 0.5 * draw((1, width)), form),
        "beta": round_to(draw((1, width)), form),
        "dy": round_to(draw((rows, width)), form),
    }


def running(terms: Floats, form: str) -> Floats:
    """Return sums down the columns, stored after each addition."""
    total = np.zeros(terms.shape[1], np.float32)
    for row in terms:
        total = round_to(total + row, form)
    return total


def tree(terms: Floats, form: str) -> Floats:
    """Return sums down the columns as XLA's tree reduction has them: windows, padded both ways."""
    while len(terms) > WINDOW:
        windows = -(-len(terms) // WINDOW)
        padding = windows * WINDOW - len(terms)
        padded = np.pad(terms, [(padding // 2, padding - padding // 2), (0, 0)])
        terms = np.stack([running(part, form) for part in np.split(padded, windows)])
    return running(terms, form)


def shuffled(values: NDArray[np.floating], form: str) -> Floats:
    """Return sums of rows of 32 to 512 terms as one warp of a GPU adds them, term by term."""
    count = values.shape[1]
    width = 4 if count % 4 == 0 and count >= 128 else 2 if count % 2 == 0 and count >= 64 else 1
    lanes = [np.zeros(len(values), np.float32) for _ in range(32)]
    for index, term in enumerate(values.T):
        lane = index // width % 32
        lanes[lane] = round_to(lanes[lane] + term, form)
    for step in (16, 8, 4, 2, 1):  # __shfl_down_sync
        lanes = [round_to(lanes[lane] + lanes[lane + step], form) for lane in range(step)]
    return lanes[0]


def paired(values: NDArray[np.floating], form: str) -> Floats:
    """Return sums of rows of at most 1,024 terms as XLA has Triton add them in 2 warps."""
    count = values.shape[1]
    width = next(size for size in (8, 4, 2, 1) if count % size == 0)
    of_lane: list[list[Floats]] = [[] for _ in range(64)]
    for index in range(max(128, 2 ** int(np.ceil(np.log2(count))))):
        term = values[:, index] if index < count else np.zeros(len(values))
        of_lane[index // width % 64].append(term.astype(np.float32))
    lanes = []
    for terms in of_lane:
        even, odd = terms[0::2], terms[1::2]  # a register holds two 16-bit terms
        while len(even) > 1:
            even, odd = (
                [round_to(one + other, form) for one, other in zip(a[0::2], a[1::2], strict=True)]
                for a in (even, odd)
            )
        lanes.append(round_to(even[0] + odd[0], form))
    warps = [lanes[:32], lanes[32:]]
    for step in (16, 8, 4, 2, 1):
        warps = [
            [round_to(warp[lane] + warp[lane + step], form) for lane in range(step)]
            for warp in warps
        ]
    return round_to(warps[0][0] + warps[1][0], form)


def threaded(values: NDArray[np.float64], form: str) -> Floats:
    """Return sums of rows as tl.sum adds them up in 4 warps, thread by thread.

    values: exact products, of which a thread's multiply-adds round all but the second term with the
    sum only.
    """
    width = values.shape[1]
    length = max(128, 2 ** int(np.ceil(np.log2(width))))
    vector = min(8, length // 128) if width % 16 == 0 else 1
    terms: list[list[NDArray[np.float64]]] = [[] for _ in range(128)]
    for index in range(width):
        terms[index // vector % 128].append(values[:, index])
    totals = []
    for thread in terms:
        total = thread[0] if thread else np.zeros(len(values))
        if len(thread) > 1:
            total = round_to(total + round_to(thread[1], form), form).astype(np.float64)
        for term in thread[2:]:
            total = round_to(total + term, form).astype(np.float64)
        totals.append(round_to(total, form))
    warps = [totals[start : start + 32] for start in range(0, 128, 32)]
    for step in (16, 8, 4, 2, 1):
        warps = [
            [round_to(lanes[k] + lanes[k + step], form) for k in range(step)] for lanes in warps
        ]
    first, second, third, last = (lanes[0] for lanes in warps)
    return round_to(round_to(first + third, form) + round_to(second + last, form), form)


class Stores:
    """Round the values that an arithmetic stores; fp32 holds the others."""

    def __init__(self, form: str, names: Collection[str]) -> None:
        """Store the values of these names in a format."""
        self.form = form
        self.names = names

    def __call__(self, name: str, values: NDArray[np.floating]) -> Floats:
        """Return the values as they are stored."""
        narrow = values.astype(np.float32)
        return round_to(narrow, self.form) if name in self.names else narrow


def mean(terms: Floats, store: Stores | None = None, total: str = "") -> Floats:
    """Return the mean of each row, summed in fp32; a stored sum has the name `total`."""
    added = terms.sum(axis=1, keepdims=True, dtype=np.float32)
    count = np.float32(terms.shape[1])
    if store is None or total not in store.names:
        return added / count
    if "1/N" in store.names:
        return store(total, added) * store("1/N", 1 / np.asarray(count))
    return store(total, added) / store("N", np.asarray(count))


def forward(
    given: Mapping[str, Floats],
    epsilon: float,
    store: Stores,
    variance: str,
    product: str,
    *,
    centered: bool = True,
    factor: float = 1.0,
) -> NDArray[np.floating]:
    """Return y before its own rounding; rstd is off by a `factor`."""
    x = given["x"]
    average = mean(x, store, "sum of x") if centered else np.zeros((len(x), 1), np.float32)
    center = store("mean", average) if centered else average
    deviations = store("x - mean", x - center) if centered else x
    if variance == "E[x^2] - mean^2":
        size = store("mean square", mean(store("square", x * x), store, "sum of squares"))
        # a contracted product and its difference round once
        squared = center.astype(np.float64) ** 2
        if "mean^2" in store.names:
            squared = store("mean^2", squared).astype(np.float64)
        spread = np.maximum(size - squared, 0.0)
    else:
        about = x - average if variance == "x" else deviations
        spread = mean(store("square", about * about), store, "sum of squares")
    rounded = round_to(epsilon, store.form) if "epsilon" in store.names else np.float32(epsilon)
    shifted = store("variance + epsilon", store("variance", spread) + rounded)
    root = store("root", np.sqrt(shifted))
    one = np.float32(1)
    if product == "(x - mean) / root":
        normalized = deviations / (root * np.float32(factor))
    else:
        rstd = store("rstd", one / root)
        for name in store.names:
            if name.startswith("root %"):
                block = int(name.removeprefix("root % "))
                start = len(x) // block * block
                narrow = round_to(np.sqrt(shifted[start:]), store.form)
                rstd[start:] = store("rstd", one / narrow)
        if product.startswith("x (gamma rstd)"):
            scale = store("gamma rstd", rstd * given["gamma"])
            shift = store("mean gamma rstd", center * scale)
            shift = store("beta - mean gamma rstd", given["beta"] - shift)
            return np.asarray(store("x gamma rstd", x * scale * np.float32(factor)) + shift)
        normalized = deviations * (rstd * np.float32(factor))
    normalized = store("x^", normalized)
    beta = given["beta"] if centered else np.float32(0)
    if "gamma x^" not in store.names:  # contracted
        return np.asarray(normalized.astype(np.float64) * given["gamma"] + beta)
    return np.asarray(store("gamma x^", normalized * given["gamma"]) + beta)


def composite_gradient(
    given: Mapping[str, Floats],
    epsilon: float,
    form: str,
    *,
    centered: bool = True,
    power: bool = False,
    library: str = "torch",
) -> dict[str, Floats]:
    """Return dx and dgamma that a library derives from c rsqrt(mean(c^2) + epsilon), c = x - mean.

    c is x without `centered`. power: the square is pow(c, 2), not c c. library: torch, tensorflow
    (its fp32 sums, as in bf16), or mlx.
    """

    def s(values: NDArray[np.floating]) -> Floats:
        return round_to(np.asarray(values, np.float32), form)

    def average(terms: Floats) -> Floats:
        return s(s(terms.sum(axis=1, keepdims=True)) * share) if is_mlx else s(mean(terms))

    def spread(values: Floats) -> Floats:
        return s(values * share) if is_mlx else s(values / s(width))

    is_mlx = library == "mlx"
    x, width = given["x"], x_width(given)
    share = s(1 / width)
    deviations = s(x - average(x)) if centered else x
    shifted = s(average(s(deviations * deviations)) + np.float32(epsilon))
    rstd = s(1 / s(np.sqrt(shifted))) if is_mlx else s(1 / np.sqrt(shifted))
    product = s(given["dy"] * given["gamma"])
    total = s(s(product * deviations).sum(axis=1, keepdims=True))
    half = s(np.float32(-0.5) * total)
    if library == "torch":
        d_variance = s(half * s(s(rstd * rstd) * rstd))
    elif is_mlx:
        d_variance = s(half * s(rstd / shifted))
    else:
        d_variance = s(s(half * rstd) * s(rstd * rstd))
    direct = s(product * rstd)
    if power:
        dx = d_centered = s(direct + s(spread(d_variance) * (2 * deviations)))
    else:
        through = s(spread(d_variance) * deviations)
        dx = d_centered = s(s(direct + through) + through)
    if centered:
        d_mean = s(-d_centered.sum(axis=1, keepdims=True))
        dx = s(d_centered + spread(d_mean))
    normalized = s(deviations * rstd)
    return {
        "dx": dx,
        "dgamma": s(s(given["dy"] * normalized).sum(axis=0)),
    }


def moments_gradient(given: Mapping[str, Floats], epsilon: float, form: str) -> dict[str, Floats]:
    """Return dx and dgamma of tf.nn.batch_normalization after tf.nn.moments, as in bf16."""

    def s(values: NDArray[np.floating]) -> Floats:
        return round_to(np.asarray(values, np.float32), form)

    x, gamma, dy, width = given["x"], given["gamma"], given["dy"], s(x_width(given))
    center = s(mean(x))
    deviations = s(x - center)
    rstd = s(1 / np.sqrt(s(s(mean(s(deviations * deviations))) + np.float32(epsilon))))
    factor = s(rstd * gamma)
    d_factor = s(s(dy * x) - s(dy * center))
    d_rstd = s(s(d_factor * gamma).sum(axis=1, keepdims=True))
    d_variance = s(s(s(np.float32(-0.5) * d_rstd) * rstd) * s(rstd * rstd))
    through = s(2 * s(d_variance / width) * deviations)
    d_mean = s(s(-dy * factor).sum(axis=1, keepdims=True))
    return {
        "dx": s(s(s(dy * factor) + s(d_mean / width)) + through),
        "dgamma": s(s(d_factor * rstd).sum(axis=0)),
    }


def quotient_gradient(given: Mapping[str, Floats], epsilon: float, form: str) -> dict[str, Floats]:
    """Return dx and dgamma that torch derives from (x - mean) / sqrt(variance + epsilon)."""

    def s(values: NDArray[np.floating]) -> Floats:
        return round_to(np.asarray(values, np.float32), form)

    x, width = given["x"], x_width(given)
    center = s(mean(x))
    variance = s(mean((x - mean(x)) ** 2))
    root = s(np.sqrt(s(variance + np.float32(epsilon))))
    deviations = s(x - center)
    normalized = s(deviations / root)
    product = s(given["dy"] * given["gamma"])
    direct = s(product / root)
    total = s(s(-product * s(normalized / root)).sum(axis=1, keepdims=True))
    d_variance = s(total / (2 * root))
    through = s(s(np.float32(2.0 / float(width)) * d_variance) * deviations)
    d_mean = s(-direct.sum(axis=1, keepdims=True))
    return {
        "dx": s(direct + s(through + s(d_mean / width))),
        "dgamma": s(s(given["dy"] * normalized).sum(axis=0)),
    }


def jax_gradient(
    given: Mapping[str, Floats],
    epsilon: float,
    form: str,
    *,
    fast: bool,
    on_gpu: RowSums | None = None,
) -> dict[str, Floats]:
    """Return dx, dgamma and dbeta that JAX derives, operation by operation.

    fast: from mean(x^2) - mean(x)^2, as jax.nn.standardize has it; else from jnp.var. on_gpu: the
    sums of a GPU; dx is that of compiled code on it.
    """

    def s(values: NDArray[np.floating]) -> Floats:
        return round_to(np.asarray(values, np.float32), form)

    def total(terms: Floats) -> Floats:
        if on_gpu is not None:
            return on_gpu(terms, form)[:, None]
        return tree(np.ascontiguousarray(terms.T), form)[:, None]

    x, width = given["x"], x_width(given)
    center = s(mean(x))
    deviations = s(x - center)
    if fast:
        variance = np.maximum(s(s(mean(s(x * x))) - s(center * center)), np.float32(0))
    else:
        variance = s(mean((x - mean(x)) ** 2))
    shifted = s(variance + round_to(epsilon, form))
    inverse = 1 / np.sqrt(shifted)
    rstd = s(inverse)
    normalized = s(deviations * rstd)
    product = s(given["dy"] * given["gamma"])
    direct = s(product * rstd)
    slope = s(np.float32(-0.5) * s((inverse if on_gpu else rstd) / shifted))
    d_variance = s(total(s(deviations * product)) * slope)
    d_mean = total(-direct)
    if fast:
        d_mean = s(d_mean + s(-d_variance * (2 * center)))
        through = s(s(d_variance / width) * (2 * x))
    else:
        through = s(2 * (d_variance / width) * (x - mean(x)))
    return {
        "dx": s(s(direct + through) + s(d_mean / width)),
        "dgamma": tree(s(given["dy"] * normalized), form),
        "dbeta": tree(given["dy"], form),
    }


def jax_rms_gradient(
    given: Mapping[str, Floats], epsilon: float, form: str, *, on_gpu: RowSums | None = None
) -> dict[str, Floats]:
    """Return dx and dgamma that JAX derives from x rsqrt(jnp.mean(jnp.square(x)) + epsilon).

    on_gpu: the sums of a GPU; dx is that of compiled code on it.
    """

    def s(values: NDArray[np.floating]) -> Floats:
        return round_to(np.asarray(values, np.float32), form)

    x, width = given["x"], x_width(given)
    shifted = s(s(mean(s(x * x))) + round_to(epsilon, form))
    inverse = 1 / np.sqrt(shifted)
    rstd = s(inverse)
    product = s(given["dy"] * given["gamma"])
    terms = s(x * product)
    total = on_gpu(terms, form) if on_gpu else tree(np.ascontiguousarray(terms.T), form)
    slope = s(np.float32(-0.5) * s((inverse if on_gpu else rstd) / shifted))
    d_variance = s(total[:, None] * slope)
    return {
        "dx": s(s(product * rstd) + s(s(d_variance / width) * (2 * x))),
        "dgamma": tree(s(given["dy"] * s(x * rstd)), form),
    }


def x_width(given: Mapping[str, Floats]) -> np.float32:
    """Return N."""
    return np.float32(given["x"].shape[1])
