"""Forensics of groupnorm_fw: gonogo.kernels.rows.forensics over rows of groups.

gamma and beta have one value per channel. A tile is 32 elements of a group in the order of the
tensor; a row is a group of a sample. Statistics that follow no pattern of tiles are compared with
those of other groups: channels shifted by one, half groups, pairs of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.kind import Arrays
from gonogo.kernels.layernorm.forensics.forward_sums import Forward
from gonogo.kernels.rows import forensics
from gonogo.kernels.rows.model import Fitted, fitted
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

CLOSER = 0.25
"""Means of other groups explain the used ones when their distance is at most this part.

The unit is the distance of the right means.
"""


def diagnose(test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
    """Return which terms are wrong, with the tiles or groups of the statistics.

    The terms are the mean and the variance with its divisor and epsilon, gamma and beta.
    """
    groups = test.parameter("num_groups")
    return forensics.diagnose(
        test,
        given,
        outputs,
        groups=groups,
        centred=True,
        noun="variance",
        channel="channel",
        regroup=other_groups,
    )


def other_groups(seed: Forward, fitted_y: Fitted, used: Array) -> str:
    """Return in words the groups whose statistics y was computed with; "" for its own."""
    right_distance = _distance(used, seed.statistics.mean)
    if seed.y is not None and len(seed.gamma) // seed.groups % 2 == 0:
        halves = replace(
            seed,
            x=seed.x.reshape(2 * len(seed.x), -1),
            y=seed.y.reshape(2 * len(seed.y), -1),
            groups=2 * seed.groups,
            outliers={},
        )
        if fitted(halves, seed.gamma, seed.beta).energy * forensics.BETTER < fitted_y.energy:
            return "there are twice as many groups, of half the channels"
    for words, mean in _others(seed):
        if _distance(used, mean) < CLOSER * right_distance:
            return words
    return ""


def _distance(used: Array, mean: Array) -> float:
    """Return the rms distance over the rows that can tell."""
    good = np.isfinite(used)
    return float(np.sqrt(np.mean((used[good] - mean[good]) ** 2))) if good.any() else np.inf


def _others(seed: Forward) -> Iterator[tuple[str, Array]]:
    """Yield (words, the mean of each row) for other groups.

    Each channel's mean is enough to compute all of them.
    """
    samples = len(seed.x) // seed.groups
    channels = seed.x.reshape(samples, len(seed.gamma), seed.width).mean(axis=2, dtype=np.float64)
    if seed.groups > 1:
        for words, step in (("one further on", -1), ("one further back", 1)):
            moved = np.roll(channels, step, axis=1).reshape(len(seed.x), -1).mean(axis=1)
            yield f"the statistics of a group are those of channels {words}", moved
    if seed.groups % 2 == 0:
        pairs = channels.reshape(samples, seed.groups // 2, -1).mean(axis=2)
        yield (
            "there are half as many groups, of twice the channels",
            np.repeat(pairs, 2, axis=1).reshape(-1),
        )
