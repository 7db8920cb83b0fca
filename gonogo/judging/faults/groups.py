"""The faults of group norm's groups: statistics of other channels than the row's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults.fault import Fault, Residual
from gonogo.judging.faults.statistics import TILE
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array


def faults(
    rows: Rows, gamma: Array, beta: Array, normalized: Array, exact: Array
) -> Iterator[Fault]:
    """Yield groups that are shifted by a channel, or have half or twice as many; and shifted gamma.

    gamma, beta: (1 or rows, N), or (1, 1). normalized: x^, and exact: y (rows, N). Only whole
    samples have neighbors.
    """
    count, features = exact.shape
    if rows.place is not None or count % rows.groups:
        return
    width, per_group = rows.channel_width, features // rows.channel_width
    samples, channels = count // rows.groups, rows.groups * per_group
    x = np.asarray(rows.x, np.float64).reshape(samples, channels, width)
    cuts = {f"shifted by {shift} channel": (shift, per_group) for shift in (1, -1)}
    if per_group % 2 == 0:
        cuts["half as wide"] = (0, per_group // 2)
    if rows.groups % 2 == 0:
        cuts["twice as wide"] = (0, 2 * per_group)
    for words, (shift, size) in cuts.items():
        if size == channels and shift:
            continue
        groups = np.roll(x, -shift, axis=1).reshape(samples, channels // size, size * width)
        mean = groups.mean(axis=2, keepdims=True)
        centered = groups - mean
        rstd = 1.0 / np.sqrt((centered**2).mean(axis=2, keepdims=True) + rows.epsilon)
        moved = np.roll((centered * rstd).reshape(x.shape), shift, axis=1)
        changed = moved.reshape(count, features) * gamma + beta
        yield Fault(f"the groups are {words}", changed - exact)
    full = np.broadcast_to(gamma, exact.shape).reshape(x.shape)
    for shift in (1, -1, TILE, -TILE):
        if abs(shift) < channels:
            moved = np.roll(full, shift, axis=1) - full
            noun = "channel" if abs(shift) == 1 else "channels"
            effect = normalized * moved.reshape(exact.shape)
            yield Fault(f"gamma is shifted by {shift} {noun}", effect)


def recut(rows: Rows, gamma: Array, normalized: Array, residual: Residual) -> Fault:
    """Return the fault of groups that are cut elsewhere: statistics that change within a row."""
    shape = residual.error.shape
    width = rows.channel_width
    cut = (residual.error.size // width, width)
    scaled = (gamma * normalized).reshape(cut)
    full = np.broadcast_to(gamma, shape).reshape(cut)
    effect = residual.reshaped(cut).two_per_row(scaled, full)
    words = "the groups are cut elsewhere: mean and rstd change within a group"
    return Fault(words, effect.reshape(shape), 2 * cut[0])
