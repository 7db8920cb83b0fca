"""Factors that all groups share: an approximate rsqrt, a rounded 1/N, an epsilon slightly off.

In fp32 each group's estimate is a sample, and a t test says whether their mean is 0. In 16 bits an
element says little, so the likelihood of all cells is maximized. Both give an estimate and its
deviation, which seeds pool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic import Quantity, Replay
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.quantity import Array, Labels
from gonogo.judgment.cells import Cells
from gonogo.judgment.likelihood import most_likely, normal_deviate
from gonogo.judgment.pooling import MIN_SCORE
from gonogo.judgment.shared import Estimates

MAX_COMMON = 2.0**-22
"""The largest factor that all groups may share: an approximate rsqrt of 2 units in the last
place."""
MIN_DEVIATIONS = 1.5
"""Its least size, in deviations of one group: groups that are alike round alike."""
MIN_SCATTER = 1 / 8
"""The least scatter of the groups' estimates, relative to rounding's: below it they are copies of
one rounding, not samples."""
MIN_GROUPS = 6
"""Groups that a factor must move into their cells."""
NEAR = 9.0
"""Deviations from the edge of its cell within which an element says something about a factor."""
MAX_DEVIATION = 1 / 16
"""The same, of its own deviation in half steps."""
PAIRS = 10
"""Pairs of estimate and deviation that a seed keeps."""
MOST_LABELS = 2**32
"""More than a block of an output has groups."""

Samples = tuple[Array, ...]
"""Arrays by which groups or cells say the factor of a source; those of blocks are joined."""


@dataclass(frozen=True)
class Common:
    """A factor 1 + estimate of all of a source's values.

    Attributes:
        key: the source's name, or the output's.
        estimate: the factor, less 1.
        deviation: its standard deviation by rounding alone.
        is_certain: whether one seed alone shows that it isn't 0.
    """

    key: str
    estimate: float
    deviation: float
    is_certain: bool = False

    @property
    def size(self) -> float:
        """The size of the factor; 0 where it may be chance."""
        return abs(self.estimate) if self.is_certain else 0.0


def most_certain(pairs: Sequence[Common]) -> tuple[Common, ...]:
    """Return the pairs that a seed keeps: those that say most."""
    return tuple(sorted(pairs, key=lambda pair: pair.deviation)[:PAIRS])


def relative_rounding(quantity: Quantity, labels: Labels) -> Doubles:
    """Return the deviation of a source's own rounding, relative to its values, by its elements."""
    shape = quantity.values.shape
    with np.errstate(all="ignore"):
        relative = np.sqrt(np.broadcast_to(quantity.noise, shape)) / np.abs(quantity.values)
    by_element: Doubles = np.asarray(relative, np.float64).ravel()[labels]
    return by_element


def samples_of_groups(replay: Replay, estimates: Sequence[Estimates]) -> dict[str, Samples]:
    """Return, by the keys of sources: sizes, spreads and relative rounding, (groups,) each."""
    samples: dict[str, Samples] = {}
    for estimate in estimates:
        relative = relative_rounding(replay.quantities[estimate.source], estimate.labels)
        says = estimate.says & np.isfinite(relative) & (relative > 0)
        key = replay.graph.nodes[estimate.source].key
        samples[key] = (estimate.sizes[says], estimate.spreads[says], relative[says])
    return samples


def common_of_groups(samples: Mapping[str, Samples]) -> list[Common]:
    """Return the factor of each source by the mean of its groups' estimates (a t test)."""
    factors_of_groups = []
    for key, arrays in samples.items():
        _, distinct = np.unique(arrays[2], return_index=True)
        if len(distinct) < 2:
            continue
        size, spread, rounding = (part[distinct] for part in arrays)
        factors, weights = size / spread * rounding, spread / np.square(rounding)
        mean = float((weights * factors).sum() / weights.sum())
        freedom = len(factors) - 1
        scatter = math.sqrt(float((weights * np.square(factors - mean)).sum()) / freedom)
        deviation = max(scatter, MIN_SCATTER) / math.sqrt(float(weights.sum()))
        is_certain = (
            scatter >= MIN_SCATTER
            and abs(mean) * math.sqrt(float(weights.mean())) >= MIN_DEVIATIONS
            and normal_deviate(abs(mean) / deviation, freedom) >= MIN_SCORE
        )
        factors_of_groups.append(Common(key, mean, deviation, is_certain))
    return factors_of_groups


def samples_of_cells(replay: Replay, cells: Cells, block: int = 0) -> dict[str, Samples]:
    """Return the samples of a narrow output's cells close to an edge, by the keys of sources.

    They are the deviations by which each error lies beyond its edge, the further deviations per
    relative change of the source, and the source's element, (cells,) each; then the relative
    rounding of the source's elements. block: the number of the output's block.
    """
    quantity, half = cells.replay, cells.half
    with np.errstate(all="ignore"):
        z = (np.abs(cells.error) - half) / cells.deviation
    is_sharp = (np.abs(z) < NEAR) & (cells.deviation < MAX_DEVIATION * half)
    is_sharp &= np.broadcast_to(quantity.slack == 0, z.shape)
    samples: dict[str, Samples] = {}
    for source, part in quantity.shared.items():
        relative = relative_rounding(replay.quantities[source], part.labels)
        counts = np.isfinite(relative) & (relative > 0)
        if not counts.any() or part.labels.min() == part.labels.max():
            continue
        with np.errstate(all="ignore"):
            slope = -np.sign(cells.error) * part.error / cells.deviation / relative
        says = is_sharp & counts & np.isfinite(slope)
        labels = np.broadcast_to(part.labels, z.shape)[says] + block * MOST_LABELS
        key = replay.graph.nodes[source].key
        samples[key] = (z[says], slope[says], labels, relative[counts])
    return samples


def common_of_cells(samples: Mapping[str, Samples]) -> list[Common]:
    """Return the factor of each source that makes the cells of a narrow output most likely."""
    factors_of_sources = []
    for key, (z, slope, labels, relative) in samples.items():
        if not z.size:
            continue
        usual = float(np.median(relative))
        slope = slope * usual
        likely = most_likely(z, slope)
        moves = (z > 0) & (slope * likely.size < 0)
        is_certain = (
            len(np.unique(labels[moves])) >= MIN_GROUPS
            and 2 * likely.gain >= MIN_SCORE**2
            and abs(likely.size) >= MIN_DEVIATIONS
        )
        if math.isfinite(likely.deviation):
            size, deviation = likely.size * usual, likely.deviation * usual
            factors_of_sources.append(Common(key, size, deviation, is_certain))
    return factors_of_sources
