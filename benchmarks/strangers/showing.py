"""Can a fault show?

Asked of the two outputs, with and without the fault, and of the formats; never of GoNoGo.

Unit of rounding of an element: u T, with u the largest relative error of a value stored in a buffer
of the test, and T the sum of the sizes of the terms that make the element. A kernel that stores
every step rounds each of them by at most u T, and there are n steps on the way from the inputs to
the output. So a right kernel is off by up to n u T; a right one and its faulty twin differ by up to
2 n u T for rounding alone. A fault
- **shows** when it changes an element by more than 2 n u T: no two right kernels are that far
  apart;
- is **faint** when no element changes as much, but all of them together do: the changes, each over
  u T, have a 2-norm above 2 n. Whoever knew the form of the fault could find it; nobody can in a
  single element, and a right kernel that rounds one factor of the output may do the same. Counted
  apart;
- is **hidden** otherwise, and when it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers.plugin import buffers_of

Doubles = NDArray[np.float64]

UNIT: Final = {"bf16": 2.0**-8, "tf32": 2.0**-10}
"""bf16 has 8 significant bits, and rounding to nearest is off by up to 2^-8; TF32 has 11, and the
unpacker truncates."""
STEPS: Final = {
    "y": 6,  # mean, x - mean, rstd, x^, gamma x^, the result
    "mean": 3,  # partial sums, the mean, the result
    # partial sums, variance (half, by the root) and mean (second order), rstd, the result
    "rstd": 4,
    "dx": 7,  # x - mean, x^, P, s1 or s2, x^ s2, one of two differences, the result
    "dgamma": 5,  # x - mean, x^, dy x^, partial sums, the result
    "dbeta": 2,  # partial sums, the result
}


class Showing(Enum):
    """Ordered: what more seeds say is the largest."""

    hidden = 0
    faint = 1
    shows = 2


def showing(
    test: Mapping[str, Any],
    inputs: Mapping[str, NDArray[Any]],
    faulty: Mapping[str, Any],
    clean: Mapping[str, Any],
) -> Showing:
    """Return how a fault shows on one seed.

    test is the canonical spec; inputs and outputs have (rows, N), (rows,) or (N,).
    """
    unit = UNIT[buffers_of(dict(test))]
    level = Showing.hidden
    for name, size in sizes(test, inputs).items():
        wrong, right = np.asarray(faulty[name], np.float64), np.asarray(clean[name], np.float64)
        if not np.isfinite(wrong).all():
            return Showing.shows
        change = np.abs(wrong - right) / (unit * size)
        if change.max() > 2 * STEPS[name]:
            return Showing.shows
        if np.sqrt((change**2).sum()) > 2 * STEPS[name]:
            level = Showing.faint
    return level


def sizes(test: Mapping[str, Any], inputs: Mapping[str, NDArray[Any]]) -> dict[str, Doubles]:
    """T of each output, from its formula in float64.

    Sums of n terms that round independently err as the root of the sum of squares.
    """
    given = {name: np.asarray(value, np.float64) for name, value in inputs.items()}
    x, gamma = given["x"], given["gamma"]
    n = x.shape[1]
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + test.get("epsilon", 1e-6))
    from_mean = np.abs(x - mean) + np.abs(mean)  # a stored mean is off by u of its own size
    if test["kernel"] == "layernorm_fw":
        return {
            "y": np.abs(gamma) * rstd * from_mean + np.abs(given["beta"]),
            "mean": (np.abs(mean) + _root(x, 1) / n)[:, 0],
            "rstd": rstd[:, 0],
        }
    if "mean" in given:
        mean, rstd = given["mean"][:, None], given["rstd"][:, None]
    xhat, dy = (x - mean) * rstd, given["dy"]
    p = dy * gamma
    s1 = np.abs(p.mean(1, keepdims=True)) + _root(p, 1) / n
    s2 = np.abs((p * xhat).mean(1, keepdims=True)) + _root(p * xhat, 1) / n
    return {
        "dx": rstd * (np.abs(p) + s1 + from_mean * rstd * s2),
        "dgamma": np.abs((dy * xhat).sum(0)) + _root(dy * from_mean * rstd, 0)[0],
        "dbeta": np.abs(dy.sum(0)) + _root(dy, 0)[0],
    }


def _root(terms: Doubles, axis: int) -> Doubles:
    root: Doubles = np.sqrt((terms**2).sum(axis, keepdims=True))
    return root
