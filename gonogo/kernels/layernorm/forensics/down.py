"""Forensics of dgamma and dbeta: which row tiles they summed, and in which columns they differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gonogo.kernels.layernorm.forensics.backward import NOT_SUBTRACTED, SUBTRACTED
from gonogo.kernels.layernorm.forensics.fit import SPARE_ROWS
from gonogo.kernels.layernorm.forensics.precision import ALIGNMENT, Precision
from gonogo.kernels.layernorm.forensics.reductions import Extra, explain
from gonogo.kernels.layernorm.forensics.sums import TILE, Array, Single, row_blocks, tile_starts
from gonogo.kernels.layernorm.forensics.words import BELOW, Noun, place
from gonogo.numerics.diagnosis import Term

COLUMNS_OFF = 8.0
"""A column tile differs when its rms residual is this many times that of the middle tile."""


NAMES = ("dgamma", "dbeta", "offset", "dgamma squares", "dbeta squares", "offset squares")


def partial_sums(
    x: Single, dy: Single, mean: Array, rstd: Array, *, centered: bool
) -> dict[str, Array]:
    """Return sums down the rows of every row tile, (row tiles, N).

    "dgamma" sums dy x^, "dbeta" dy, "offset" dy mean rstd. "dgamma squares" and so on sum the
    squares. centered: whether x^ subtracts the mean (rows,).
    """
    rows, features = x.shape
    tiles = len(tile_starts(rows))
    sums = {name: np.zeros((tiles, features)) for name in NAMES}

    def visit(index: int, start: int, stop: int) -> None:
        with np.errstate(all="ignore"):
            wide = dy[start:stop].astype(np.float64)
            z = x[start:stop].astype(np.float64)
            if centered:
                z -= mean[start:stop, None]
            z *= rstd[start:stop, None]
            z *= wide
            offset = wide * (mean * rstd)[start:stop, None]
            inner = np.arange(0, stop - start, TILE)
            here = slice(index, index + len(inner))
            parts = (z, wide, offset, z * z, wide * wide, offset * offset)
            for name, terms in zip(sums, parts, strict=True):
                sums[name][here] += (
                    np.add.reduceat(terms, inner, axis=0) if len(inner) > 1 else terms.sum(axis=0)
                )

    row_blocks(rows, features, visit)
    return sums


def explain_down(
    name: str,
    used: Array,
    sums: dict[str, Array],
    precision: Precision,
    why: str,
    *,
    centered: bool,
) -> Term:
    """Return the term of `name` (dgamma or dbeta), (N,): the row tiles that it summed.

    Where column tiles differ instead, the term names those. centered: as for partial_sums.
    """
    partial = np.ascontiguousarray(sums[name].T)
    noun = precision.noun(Noun(name, unit="row tile", above=BELOW), partial.shape[1])
    extras: list[Extra] = []
    with np.errstate(all="ignore"):
        whole = partial.sum(axis=1)
        # dgamma's terms, and the x^ in them, may each have been stored as bf16, too. A narrow Dst
        # rounds after every row, not only after every row tile.
        stored = precision.stored(1 if precision.wide else TILE * partial.shape[1])
        square = np.vecdot(partial, partial) + sums[f"{name} squares"].sum(axis=0)
        sigma = np.sqrt(precision.element(used) ** 2 + 2 * stored**2 * square)
        if name == "dgamma" and not centered:
            extras.append(Extra(-sums["offset"].sum(axis=0), SUBTRACTED))
        elif name == "dgamma":
            beta, offset = sums["dbeta"].sum(axis=0), sums["offset"].sum(axis=0)
            apart = sums["offset squares"].sum(axis=0) + offset**2
            sigma = np.sqrt(
                sigma**2 + ALIGNMENT**2 * (beta**2 + offset**2) + precision.own_mean**2 * apart
            )
            extras.append(Extra(offset, NOT_SUBTRACTED))
    term = explain(name, noun, partial, used, sigma, extras, why, lane="column")
    if not term.rows:
        return term
    tiles = _columns(used - whole, sigma)
    if tiles is None:
        return term
    words = f"{name} differs in {place(tiles, -(-len(used) // TILE), 'column tile')}"
    return replace(term, words=words, wrong=True)


def _columns(error: Array, sigma: Array) -> list[int] | None:
    """Return the column tiles that hold the columns which don't follow.

    None where they aren't whole tiles.
    """
    if len(error) < 2 * TILE + SPARE_ROWS:
        return None
    with np.errstate(all="ignore"):
        score = np.add.reduceat(np.square(error / sigma), tile_starts(len(error)))
    score = np.where(np.isfinite(score), score, np.inf)
    off = np.flatnonzero(score > COLUMNS_OFF**2 * max(float(np.median(score)), TILE))
    return off.tolist() if 0 < len(off) <= len(score) // 2 else None
