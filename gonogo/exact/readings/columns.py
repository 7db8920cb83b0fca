"""Wrong gammas and betas: hypotheses about the columns of y = gamma x^ + beta."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.reading import Reading
from gonogo.spec.regimes import TILE

Doubles = NDArray[np.float64]


def readings(
    some: Elements,
    xhat: Doubles,
    index: NDArray[np.intp],
    gamma: Doubles,
    beta: Doubles | None,
) -> list[Reading]:
    """Return the hypotheses about gamma and beta with the shares that they explain.

    xhat: x^ of the elements. index: the index of their gamma. gamma, beta: the vectors; beta is
    None where the kernel has none.
    """
    result = []
    for term, words, other_gamma, other_beta in _hypotheses(gamma, beta):
        value = other_gamma[index] * xhat
        if other_beta is not None:
            value = value + other_beta[index]
        result.append(Reading(term, words, some.share(value)))
    return result


def _hypotheses(
    gamma: Doubles, beta: Doubles | None
) -> Iterator[tuple[str, str, Doubles, Doubles | None]]:
    yield "output", "the outputs are 0", 0 * gamma, None if beta is None else 0 * beta
    yield "gamma", "gamma is missing", np.ones_like(gamma), beta
    yield "gamma", "gamma is applied twice", gamma**2, beta
    yield "gamma", "gamma has lost its sign", np.abs(gamma), beta
    for step, words in SHIFTS:
        if abs(step) < gamma.size:
            yield "gamma", f"gamma is read {words}", _shifted(gamma, step), beta
    if beta is None:
        return
    yield "beta", "beta is missing", gamma, np.zeros_like(beta)
    yield "beta", "beta is added twice", gamma, 2 * beta
    yield "beta", "beta is subtracted", gamma, -beta
    for step, words in SHIFTS:
        if abs(step) < gamma.size:
            yield "beta", f"beta is read {words}", gamma, _shifted(beta, step)
    for step, words in SHIFTS:
        if abs(step) < gamma.size:
            both = _shifted(gamma, step), _shifted(beta, step)
            yield "gamma", f"gamma and beta are read {words}", *both
    yield "gamma", "gamma and beta are exchanged", beta, gamma
    yield "gamma", "gamma is applied to beta, too", gamma, beta * gamma


SHIFTS = (
    (1, "one column too early"),
    (-1, "one column too late"),
    (TILE, "one tile (32 columns) too early"),
    (-TILE, "one tile (32 columns) too late"),
)


def _shifted(values: Doubles, step: int) -> Doubles:
    """Return the values so many columns before; NaN where there is none."""
    result = np.full_like(values, np.nan)
    if step > 0:
        result[step:] = values[:-step]
    else:
        result[:step] = values[-step:]
    return result
