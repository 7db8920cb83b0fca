"""The fixed number of seeds that sequential seeds are compared with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gonogo.flakiness.policy import POLICY, FlakinessPolicy


def fixed_seeds(policy: FlakinessPolicy = POLICY, most: int = 2000) -> int | None:
    """Return the smallest fixed number of seeds that keeps both error rates of the policy.

    None above `most`. Exact binomial tails are computed for one number after the other, at the
    smallest threshold that the stable rate allows.
    """

    def terms(n: int, p: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        count = np.arange(n + 1)
        logs = np.concatenate(
            [[0.0], np.cumsum(np.log(np.arange(n, 0, -1)) - np.log(np.arange(1, n + 1)))]
        )
        return np.asarray(
            np.exp(logs + count * math.log(p) + (n - count) * math.log1p(-p)), dtype=np.float64
        )

    for n in range(1, most + 1):
        within = np.cumsum(terms(n, policy.stable_rate))
        threshold = int(np.searchsorted(within, 1 - policy.false_flaky))
        if (
            threshold <= n
            and float(terms(n, policy.flaky_rate)[: threshold + 1].sum()) <= policy.false_stable
        ):
            return n
    return None
