"""LayerNorm forward and backward, step by step.

Each step has a name, at which its value may be stored and a fault may strike.

Shapes: x, dy and what is made of them (rows, N); gamma, beta (rows, N), broadcast when read, as a
tile sees them; mean, variance, rstd, s1, s2 (rows, 1); dgamma, dbeta (N,); count, epsilon scalars.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers.arithmetic import Work
from benchmarks.strangers.moments import METHODS, RSQRTS

Floats = NDArray[np.float32]

FORWARD_STAGES = ("mean", "centred", "squares", "variance", "rstd", "xhat", "scaled")
BACKWARD_STAGES = (
    "centred",
    "xhat",
    "p",
    "px",
    "s1",
    "s2",
    "correction",
    "difference",
    "dgamma terms",
)


def statistics(work: Work, x: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Mean and rstd of the rows, as the kernel makes its own."""
    count = work.keep("count", np.float32(x.shape[1]))
    seen = work.keep("seen", x)
    if work.arithmetic.moments == "two-pass":
        mean = work.keep("mean", work.mean(work.keep("mean terms", seen), count))
        centred = seen - mean
        squares = work.keep(
            "squares",
            work.times(centred, centred)
            if work.arithmetic.product == "exact"
            else centred * centred,
        )
        variance = work.mean(squares, work.keep("variance count", count))
    else:
        mean, variance = METHODS[work.arithmetic.moments](seen, work.total, np.float32(count))
        mean = work.keep("mean", mean)
    variance = work.keep("variance", variance)
    radicand = work.keep("radicand", variance + work.keep("epsilon", np.float32(epsilon)))
    with np.errstate(all="ignore"):  # a fault may give a negative one
        return mean, work.keep("rstd", RSQRTS[work.arithmetic.rsqrt](radicand))


def forward(
    work: Work, x: Floats, gamma: Floats, beta: Floats, epsilon: float
) -> dict[str, Floats]:
    """y, mean, rstd of layernorm_fw.

    Forms: textbook ((x - mean) rstd gamma + beta), folded (x a + b with a = rstd gamma and b = beta
    - mean a) and early (rstd gamma first).
    """
    x = work.keep("x", x)
    gamma = work.keep("gamma", np.broadcast_to(gamma, x.shape))
    beta = work.keep("beta", np.broadcast_to(beta, x.shape))
    mean, rstd = statistics(work, x, epsilon)
    if work.arithmetic.form == "folded":
        factor = work.keep("xhat", rstd * gamma)
        y = work.plus_product(work.minus_product(beta, mean, factor), x, factor)
    else:
        centred = work.keep("centred", x - mean)
        if work.arithmetic.form == "early":
            y = work.plus_product(beta, centred, work.keep("xhat", rstd * gamma))
        else:
            xhat = work.keep(
                "xhat",
                work.times(centred, rstd)
                if "centred" in work.arithmetic.stored
                else centred * rstd,
            )
            y = work.keep("scaled", work.times(xhat, gamma)) + beta
            if work.arithmetic.fused and "scaled" not in work.alterations:
                y = work.plus_product(beta, xhat, gamma)
    return {
        "y": work.give("y", y),
        "mean": work.give("mean of rows", mean)[:, 0],
        "rstd": work.give("rstd of rows", rstd)[:, 0],
    }


def backward(
    work: Work,
    x: Floats,
    gamma: Floats,
    dy: Floats,
    epsilon: float,
    given: tuple[Floats, Floats] | None,
) -> dict[str, Floats]:
    """dx, dgamma, dbeta of layernorm_bw.

    Forms of dx: textbook (rstd (p - s1 - x^ s2)), scaled (rstd / N (N p - sum p - x^ sum p x^)),
    spread (each term times rstd), and folded (rstd p + a x + b).
    """
    x, dy = work.keep("x", x), work.keep("dy", dy)
    gamma = work.keep("gamma", np.broadcast_to(gamma, x.shape))
    if given is None:
        mean, rstd = statistics(work, x, epsilon)
    else:
        mean, rstd = work.keep("mean", given[0][:, None]), work.keep("rstd", given[1][:, None])
    centred = work.keep("centred", x - mean)
    xhat = work.keep("xhat", centred * rstd)
    p = work.keep("p", work.times(dy, gamma))
    px = work.keep("px", work.times(p, xhat))
    count = work.keep("count", np.float32(x.shape[1]))
    s1 = work.keep("s1", work.mean(work.keep("s1 terms", p), count))
    s2 = work.keep("s2", work.mean(work.keep("s2 terms", px), count))
    dx = _dx(work, x, mean, rstd, xhat, work.keep("p of dx", p), s1, s2)
    terms = work.keep("dgamma terms", work.times(dy, xhat))
    return {
        "dx": work.give("dx", dx),
        "dgamma": work.give("dgamma", work.down(terms)),
        "dbeta": work.give("dbeta", work.down(work.keep("dbeta terms", dy))),
    }


def _dx(
    work: Work,
    x: Floats,
    mean: Floats,
    rstd: Floats,
    xhat: Floats,
    p: Floats,
    s1: Floats,
    s2: Floats,
) -> Floats:
    form = work.arithmetic.form
    correction = work.keep("correction", xhat * s2)
    scale = work.keep("rstd of dx", rstd)
    dx: Floats
    if form == "scaled":
        count = np.float32(x.shape[1])
        dx = scale / count * (count * p - count * s1 - count * correction)
        return dx
    if form == "spread":
        dx = p * scale - s1 * scale - correction * scale
        return dx
    if form == "folded":
        slope = -s2 * scale * rstd
        return work.plus_product(-slope * mean - s1 * scale, slope, x) + p * scale
    difference = work.keep("difference", p - s1)
    if work.arithmetic.fused and "correction" not in work.alterations:
        return scale * work.minus_product(difference, xhat, s2)
    return scale * work.keep("second difference", difference - correction)
