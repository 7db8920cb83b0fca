"""Faults, and the small changes that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers.arithmetic import Alteration, Work
from benchmarks.strangers.sums import Order

Floats = NDArray[np.float32]
TILE = 32
FACE = 16


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: alterations of stages, or another order of all sums."""

    name: str
    kernel: str
    alterations: Mapping[str, Alteration] = field(default_factory=dict)
    order: Order | None = None


def columns(part: slice, factor: float = 0.0) -> Alteration:
    """The columns of `part` times `factor`: 0 leaves them out of a sum, 2 counts them twice."""

    def alter(value: Floats, work: Work) -> Floats:
        changed = np.array(value)
        changed[:, part] *= np.float32(factor)
        return changed

    return alter


def rows(part: slice, factor: float = 0.0) -> Alteration:
    """The rows of `part` times `factor`."""

    def alter(value: Floats, work: Work) -> Floats:
        changed = np.array(value)
        changed[part] *= np.float32(factor)
        return changed

    return alter


def every(width: int, phase: int) -> Alteration:
    """Every second block of `width` columns is left out."""

    def alter(value: Floats, work: Work) -> Floats:
        block = np.arange(value.shape[1]) // width
        return np.where(block % 2 == phase, np.float32(0), value)

    return alter


def times(factor: float) -> Alteration:
    """A wrong factor."""
    return lambda value, work: value * np.float32(factor)


def plus(term: float) -> Alteration:
    """A wrong summand."""
    return lambda value, work: value + np.float32(term)


def constant(number: float) -> Alteration:
    """Never computed."""
    return lambda value, work: np.full_like(value, number)


def instead(stage: str) -> Alteration:
    """Another value is read; it must have been made before."""
    return lambda value, work: np.broadcast_to(work.values[stage], value.shape)


def neighbour(step: int, axis: int = 0) -> Alteration:
    """Read `step` places away (around the end)."""
    return lambda value, work: np.roll(value, step, axis)


def tail_again(value: Floats, work: Work) -> Floats:
    """Sum the padding of the last tile too: it holds the row's first values and isn't masked.

    Without padding nothing happens.
    """
    return np.concatenate([value, value[:, : -value.shape[1] % TILE]], axis=1)


def garbage(size: float) -> Alteration:
    """The padding of the last tile holds `size` and isn't masked."""

    def alter(value: Floats, work: Work) -> Floats:
        return np.pad(value, ((0, 0), (0, -value.shape[1] % TILE)), constant_values=size)

    return alter


def block(
    row: slice, column: slice, number: float | None = None, factor: float = 0.0
) -> Alteration:
    """One block of an output: set to `number`, or times `factor`."""

    def alter(value: Floats, work: Work) -> Floats:
        changed = np.array(value)
        if number is None:
            changed[row, column] *= np.float32(factor)
        else:
            changed[row, column] = number
        return changed

    return alter


def swapped(first: slice, second: slice, axis: int) -> Alteration:
    """Swap two equal blocks of columns or rows; do nothing where they don't both exist."""

    def alter(value: Floats, work: Work) -> Floats:
        changed = np.array(value)
        a = (slice(None),) * axis + (first,)
        b = (slice(None),) * axis + (second,)
        if value[a].shape == value[b].shape:
            changed[a], changed[b] = value[b], value[a]
        return changed

    return alter


def sometimes(alteration: Alteration, period: int = 4, phase: int = 3) -> Alteration:
    """A race: only one run of `period` shows it."""
    return lambda value, work: alteration(value, work) if work.run % period == phase else value


def stale(name: str, part: tuple[slice, ...] = (slice(None),)) -> Alteration:
    """A part keeps what the previous run had there."""

    def alter(value: Floats, work: Work) -> Floats:
        changed = np.array(value)
        before = work.memory.get(name)
        work.memory[name] = np.array(value)
        if before is not None and before.shape == value.shape:
            changed[part] = before[part]
        return changed

    return alter


def accumulated(name: str) -> Alteration:
    """The accumulator isn't cleared: the previous run's result is added."""

    def alter(value: Floats, work: Work) -> Floats:
        total: Floats = value + work.memory.get(name, np.float32(0))
        work.memory[name] = np.array(value)
        return total

    return alter


def stuck(bit: int, lane: slice) -> Alteration:
    """A bit of the float32 pattern is 1 in some columns, whatever it should be."""

    def alter(value: Floats, work: Work) -> Floats:
        bits = np.array(value, np.float32).view(np.uint32)
        bits[..., lane] |= np.uint32(1 << bit)
        return bits.view(np.float32)

    return alter
