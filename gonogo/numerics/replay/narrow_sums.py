"""Sums whose total is stored in a narrow format after each addition, in the orders of libraries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import jit
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay import operations
from gonogo.numerics.replay.program import ColumnOrder

UNIT = 2.0**-24
"""The unit roundoff of fp32."""
WINDOW = 32
LANES, FOLDED = 4, 8
PACKET = 8
LANES_FROM = 16
"""Rows from which Eigen adds up columns in lanes, as TensorFlow 2.21 shows: not 15, but 16."""
HALVED_FROM = 2048
"""Terms from which Eigen cuts a row in halves, as TensorFlow 2.21 shows: not 1,500, but 2,048."""
WARP, PER_THREAD = 32, 16
"""Lanes of a GPU that add up together, and the terms of a row that XLA gives to each of them."""
BLOCK_LANES = 1024
"""The most lanes that add up a row, a GPU's block of threads; longer rows, which were not measured,
have more terms in each."""
TILE_LANES = ((1024, 64), (4096, 128), (16384, 256), (math.inf, 512))
"""The longest padded row and its lanes, as XLA has Triton take them; the last one is a guess."""
BLOCK_THREADS, VECTOR = 128, 8
"""Threads of a Triton program of 4 warps, its default, and the 16-bit terms of 16 bytes."""
ALIGNED = 16
"""The divisor of a length that Triton knows of: only then its threads load whole vectors."""
LOST, ONE, HALF = np.uint64(45), np.uint64(1), np.uint64(2**44 - 1)
"""The bits of a float64's fraction that bf16 lacks, and what rounds them to nearest even."""


@dataclass(frozen=True)
class Place:
    """Where some sums are among all sums of a tensor.

    Attributes:
        index: of each sum (sums,).
        count: the number of all sums.
    """

    index: NDArray[np.intp]
    count: int


def bounds(
    values: Array,
    reach: Array,
    form: str,
    order: ColumnOrder,
    mode: Mode = "even",
    place: Place | None = None,
) -> Array:
    """Return sums along the first axis, stored after each addition: least, usual, largest.

    A term lies within `reach` of its value. Rounding is monotonic, so the sums of the smallest and
    of the largest terms bound what the kernel has.

    Args:
        values: (terms, sums).
        reach: likewise.
        form: the format in which totals are stored.
        order: not blocked, which stores a total once.
        mode: how totals are rounded.
        place: where the sums are in the whole tensor; None: these are all. Orders that align
            their parts in memory depend on it.

    Returns: (sums, 3).
    """
    spread = np.stack([values - reach, values, values + reach], axis=-1)
    if place is None:
        place = Place(np.arange(values.shape[1]), values.shape[1])
    if order is ColumnOrder.packets:
        return _in_packets(spread, form, mode, place)
    if order is ColumnOrder.windows:
        while len(spread) > WINDOW:
            spread = _running(_windows(spread), form, mode)
        return _running(spread, form, mode)
    if order is ColumnOrder.folded:
        return _folded(spread, form, mode)
    if order is ColumnOrder.lanes:
        return _in_lanes(spread, form, mode, place)
    if order is ColumnOrder.warps:
        return _in_warps(spread, form, mode)
    if order is ColumnOrder.tiles:
        return _in_tiles(spread, form, mode)
    if order is ColumnOrder.one_warp:
        return _in_one_warp(spread, form, mode)
    if order is ColumnOrder.threads:
        return _in_threads(spread, form, mode)
    count = {ColumnOrder.halves: 2, ColumnOrder.quarters: 4}.get(order, 1)
    parts = np.array_split(spread, min(count, len(spread)))
    total = np.sum([_running(part, form, mode) for part in parts], axis=0)
    return total if len(parts) == 1 else _narrow(total, form, mode)


def _windows(terms: Array) -> Array:
    """Return windows of 32 terms, (32, windows, ...), padded with zeros at both ends.

    That is how XLA's tree reduction on a CPU cuts a sum; it stores each window's sum, and cuts the
    sums again.
    """
    count = -(-len(terms) // WINDOW)
    padding = count * WINDOW - len(terms)
    widths = [(padding // 2, padding - padding // 2), *[(0, 0)] * (terms.ndim - 1)]
    padded = np.pad(terms, widths)
    return np.swapaxes(padded.reshape(count, WINDOW, *terms.shape[1:]), 0, 1)


def _folded(terms: Array, form: str, mode: Mode) -> Array:
    """Return sums in 8 lanes, whose halves are added until one is left.

    So LLVM's vectorized loops do it: the fused gradients of XLA on a CPU.
    """
    lanes = [_running(terms[lane::FOLDED], form, mode) for lane in range(min(FOLDED, len(terms)))]
    while len(lanes) > 1:
        half = -(-len(lanes) // 2)
        pairs = zip_longest(lanes[:half], lanes[half:])
        lanes = [a if b is None else _running(np.stack([a, b]), form, mode) for a, b in pairs]
    return lanes[0]


def _in_warps(terms: Array, form: str, mode: Mode) -> Array:
    """Return sums as XLA adds up a row on a GPU, whose running totals are stored in 16 bits.

    A lane gets up to 16 terms. It takes 4 neighbors at a time, or 2, if that divides the row's
    length and leaves no lane without a term. Then the halves of a warp are added until one lane is
    left, and the totals of several warps likewise. jax 0.11 on an H100 shows it, on rows of 33 to
    8,462 terms. It also has sums that Triton compiles, in tiles that depend on measured times.
    """
    count = len(terms)
    lanes = min(-(-count // (PER_THREAD * WARP)) * WARP, BLOCK_LANES)
    width = next(
        size for size in (4, 2, 1) if count % size == 0 and (size == 1 or lanes * size <= count)
    )
    totals = _running(_by_lane(terms, -(-count // (lanes * width)), lanes, width), form, mode)
    warps = [_in_halves(totals[at : at + WARP], form, mode) for at in range(0, lanes, WARP)]
    padding = np.zeros((WARP - len(warps), *terms.shape[1:]))
    return warps[0] if lanes == WARP else _in_halves(np.stack([*warps, *padding]), form, mode)


def _in_one_warp(terms: Array, form: str, mode: Mode) -> Array:
    """Return sums as XLA adds up a column on a GPU: lane k of a warp takes rows k, k + 32, ...

    Fewer than 32 rows are added in order. jax 0.11 on an H100 shows it, on 4 to 2,048 rows.
    """
    if len(terms) < WARP:
        return _running(terms, form, mode)
    lanes = _by_lane(terms, -(-len(terms) // WARP), WARP, 1)
    return _in_halves(_running(lanes, form, mode), form, mode)


def _in_tiles(terms: Array, form: str, mode: Mode) -> Array:
    """Return sums as XLA adds up a row on a GPU where it has Triton compile the sum.

    The row is padded to a power of two, of which each lane has as many terms: vectors of at most 8
    neighbors, of a size that divides the row's length. They are added two by two, every other one,
    until two are left; then these; then the lanes in halves. XLA measures whether this or `warps`
    is faster, so equal rows may have either. jax 0.11 on an H100 shows it, on rows of 300 to 8,462
    terms.
    """
    count = len(terms)
    length = max(1 << (count - 1).bit_length(), 2 * TILE_LANES[0][1])
    lanes = next(lanes for longest, lanes in TILE_LANES if length <= longest)
    width = next(size for size in (VECTOR, 4, 2, 1) if count % size == 0)
    width = min(width, length // lanes)
    totals = _by_lane(terms, length // (lanes * width), lanes, width)
    while len(totals) > 2:
        pairs = totals.reshape(-1, 2, 2, *totals.shape[1:])
        totals = _added(pairs[:, 0], pairs[:, 1], form, mode).reshape(-1, *totals.shape[1:])
    total = _added(totals[0], totals[1], form, mode)
    warps = [_in_halves(total[at : at + WARP], form, mode) for at in range(0, lanes, WARP)]
    return _in_halves(np.stack(warps), form, mode)


def _by_lane(terms: Array, rounds: int, lanes: int, width: int) -> Array:
    """Return what each lane adds, in its order: (rounds x width, lanes, ...), padded with zeros.

    In each round a lane takes the next `width` neighbors.
    """
    shape = terms.shape[1:]
    padded = np.concatenate([terms, np.zeros((rounds * lanes * width - len(terms), *shape))])
    by_round = padded.reshape(rounds, lanes, width, *shape)
    return np.swapaxes(by_round, 1, 2).reshape(-1, lanes, *shape)


def _added(first: Array, second: Array, form: str, mode: Mode) -> Array:
    return _running(np.stack([first, second]), form, mode)


def _in_threads(terms: Array, form: str, mode: Mode) -> Array:
    """Return sums as tl.sum adds up a block of 16-bit terms in 4 warps.

    A thread adds its terms one after another. The halves of a warp follow, until one lane is left,
    and then those of the warps. Terms that are products are contracted with their additions: of a
    thread's first two, the first is exact and the second rounded, all later ones are exact. Triton
    3.6 on an H100 shows it.
    """
    count = len(terms)
    length = max(BLOCK_THREADS, 1 << (count - 1).bit_length())
    width = min(VECTOR, length // BLOCK_THREADS) if count % ALIGNED == 0 else 1
    in_order = _by_lane(terms, length // (BLOCK_THREADS * width), BLOCK_THREADS, width)
    if len(in_order) == 1:
        totals = _narrow(in_order[0], form, mode)
    else:
        second = _narrow(in_order[1], form, mode)
        first = _running(np.stack([in_order[0] + second]), form, mode)
        totals = _running(np.concatenate([first[None], in_order[2:]]), form, mode)
    warps = [_in_halves(totals[at : at + WARP], form, mode) for at in range(0, BLOCK_THREADS, WARP)]
    return _in_halves(np.stack(warps), form, mode)


def _in_halves(lanes: Array, form: str, mode: Mode) -> Array:
    """Return the sum of 2^k lanes (lanes, ...): the second half is added to the first."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = _added(lanes[:half], lanes[half:], form, mode)
    total: Array = lanes[0]
    return total


def _in_lanes(terms: Array, form: str, mode: Mode, place: Place) -> Array:
    """Return sums as Eigen's reduction over the rows of a matrix adds them on a CPU.

    From 16 rows on, packets of columns have 4 running totals, which are added one after another,
    and then the rows that are left; fewer rows, and the columns after the last whole packet, are
    added in order.
    """
    whole = len(terms) // LANES * LANES
    if len(terms) < LANES_FROM:
        return _running(terms, form, mode)
    lanes = _running(terms[:whole].reshape(-1, LANES, *terms.shape[1:]), form, mode)
    totals = _running(np.concatenate([lanes, terms[whole:]]), form, mode)
    tail = place.index >= place.count // PACKET * PACKET
    if tail.any():
        totals[tail] = _running(terms[:, tail], form, mode)
    return totals


def _in_packets(terms: Array, form: str, mode: Mode, place: Place) -> Array:
    """Return sums as Eigen's full reduction of a row adds them on a CPU with packets of 8.

    From 2,048 terms on a row is cut in halves, at a multiple of 8 in memory. A part goes into 4
    packets of running totals, then into one; a packet's 8 totals are added in fp32; the terms after
    the last whole packet have a total of their own.
    """
    count = len(terms)
    first = place.index * count % PACKET
    totals = np.zeros(terms.shape[1:])
    for offset in np.unique(first):
        chosen = first == offset
        totals[chosen] = _halved(terms[:, chosen], form, mode, int(offset))
    return totals


def _halved(terms: Array, form: str, mode: Mode, first: int) -> Array:
    """Return the sums of a part of rows, whose first term lies `first` after a multiple of 8."""
    count = len(terms)
    if count < HALVED_FROM:
        return _packets(terms, form, mode)
    left = min(-(-(first + -(-count // 2)) // PACKET) * PACKET - first, count)
    parts = (
        _halved(terms[:left], form, mode, first),
        _halved(terms[left:], form, mode, (first + left) % PACKET),
    )
    return _running(np.stack(parts), form, mode)


def _packets(terms: Array, form: str, mode: Mode) -> Array:
    """Return the sums of a part of rows in packets."""
    count = len(terms)
    unrolled, whole = (count // step * step for step in (LANES * PACKET, PACKET))
    lanes = terms[:unrolled].reshape(-1, LANES, PACKET, *terms.shape[1:])
    packet = _running(_running(lanes, form, mode), form, mode)
    rest = terms[unrolled:whole].reshape(-1, PACKET, *terms.shape[1:])
    packet = _running(np.concatenate([packet[None], rest]), form, mode)
    total = _narrow(packet.sum(axis=0), form, mode)
    return _running(np.stack([_running(terms[whole:], form, mode), total]), form, mode)


def _running(terms: Array, form: str, mode: Mode) -> Array:
    """Return the sum along the first axis, stored in a format after each addition.

    terms: (terms, ..., 3), the least, the usual and the largest values. Where they differ, the fp32
    sum is rounded before it is stored; exact terms are added with one rounding.
    """
    # _narrow doesn't bound the exponent of bf16
    grid = operations.grid(form, mode, bounded=(form, mode) != ("bf16", "even"))
    if jit.is_loaded() and grid is not None and terms.size:
        totals = np.zeros((terms[0].size // 3, 3))
        flat = jit.plain(terms).reshape(len(terms), -1, 3)
        operations.run(flat, UNIT, *grid, totals)
        return totals.reshape(terms.shape[1:])
    total = np.zeros(terms.shape[1:])
    sides = np.array([-UNIT, 0.0, UNIT])
    for row in terms:
        exact = total + row
        exact += np.where(row[..., 2:] > row[..., :1], sides * np.abs(exact), 0.0)
        total = _narrow(exact, form, mode)
    return total


def _narrow(values: Array, form: str, mode: Mode) -> Array:
    """Return what round_to returns, as float64, without its care for subnormal bf16.

    A sum over many rows calls it once a row.
    """
    if mode == "even" and form == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float64)
    if mode == "even" and form == "bf16":
        bits = values.view(np.uint64)
        bits = bits + ((bits >> LOST) & ONE) + HALF
        return (bits >> LOST << LOST).view(np.float64)
    return round_to(values, form, mode).astype(np.float64)
