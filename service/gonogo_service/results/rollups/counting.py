"""The sums over a batch of results: each statistic is read once, for all seeds together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.rates import outcome_of
from gonogo.flakiness.sketches import Sketch
from gonogo.judging.columns import OutputColumns
from gonogo_service.results.rollups.figures import mean
from gonogo_service.results.rollups.tallies import (
    DURATION,
    MAXIMA,
    MEANS,
    OF_OUTPUT,
    OF_SEED,
    WHOLE,
    Tally,
    value_of,
)
from gonogo_service.results.seed_rows.batch import Batch
from gonogo_service.results.seed_rows.layouts import KINDS, stored_number

_GREEN, _RED = "passed", frozenset({"failed", "error", "crash", "hang"})
_NONE = -1.0
"""Below any magnitude: the worst of no numbers."""

Floats = NDArray[np.float64]


def tallies(batch: Batch) -> dict[tuple[str, str], Tally]:
    """Return the sums by (device, output) of seeds.

    Results of existing tests (with an `outcome`) count into their iteration and have no separate
    sums, because a suite has thousands.
    """
    places: dict[str, list[int]] = {}
    for place, row in enumerate(batch.rows):
        places.setdefault(row.get("device") or "", []).append(place)
    sums: dict[tuple[str, str], Tally] = {}
    for device, of_device in places.items():
        part = batch.take(of_device)
        sums[device, WHOLE] = _of_seeds(part)
        outputs: dict[str, list[OutputColumns]] = {}
        for columns in part.judged:
            for output in columns.outputs:
                outputs.setdefault(output.name, []).append(output)
        for name, parts in outputs.items():
            sums[device, name] = _of_output(parts)
    return sums


def _of_seeds(batch: Batch) -> Tally:
    with_outputs = batch.with_outputs()
    durations = [row.get(DURATION) for row in batch.rows]
    known = np.array([ms for ms in durations if ms is not None], np.float64)
    measured = np.array(
        [ms for n, ms in enumerate(durations) if ms is not None and n in with_outputs], np.float64
    )
    measured = measured[np.isfinite(measured)]
    sketches = {DURATION: Sketch.of(known.tolist(), missing=len(batch) - len(known))}
    for name in OF_SEED:
        worst = _worst(batch, name)
        sketches[name] = Sketch.of(worst.tolist(), missing=len(batch) - len(worst))
    outcomes: Counter[str] = Counter()
    verdicts = [row["verdict"] for row in batch.rows]
    green = {place: _green(outputs.values()) for place, outputs in batch.objects.items()}
    judged = Counter([(verdict, green.get(place)) for place, verdict in enumerate(verdicts)])
    for (verdict, is_green), number in judged.items():
        outcomes[outcome_of(verdict, is_green).value] += number
    return Tally(
        seeds=len(batch),
        empty=len(batch) - len(with_outputs),
        # whole microseconds, whose sums are exact; impossible times count as none
        duration_us=int(np.rint(1000 * known[(known > 0) & (known < 1e12)]).astype(np.int64).sum()),
        counts=_count(verdicts),
        explanations=_count([row.get("explanation") for row in batch.rows]),
        outcomes=dict(sorted(outcomes.items())),
        figures={DURATION: mean(measured)} if len(measured) else {},
        sketches=dict(sorted(sketches.items())),
    )


def _of_output(parts: Sequence[OutputColumns]) -> Tally:
    size = sum(part.numbers.shape[1] for part in parts)
    known = {
        name: np.concatenate([_values(part, name)[1] for part in parts])
        for name in (*MAXIMA, *MEANS)
    }
    finite = {name: values[np.isfinite(values)] for name, values in known.items()}
    figures = {
        **{n: stored_number(n, float(finite[n].max())) for n in MAXIMA if len(finite[n])},
        **{n: mean(finite[n]) for n in MEANS if len(finite[n])},
    }
    return Tally(
        seeds=size,
        counts=_count(verdict for part in parts for verdict in part.values("verdict")),
        explanations=_count(word for part in parts for word in part.values("explanation")),
        figures=figures,
        sketches={
            name: Sketch.of(known[name].tolist(), missing=size - len(known[name]))
            for name in sorted(OF_OUTPUT)
        },
    )


def _values(output: OutputColumns, name: str) -> tuple[slice | list[int], Floats]:
    """Return the seeds that have a statistic, and its values: NaN or Inf where its kind says so."""
    values = output.find(name)
    if values is not None:
        return slice(None), values
    names = (name, "nonfinite_statistics", KINDS)
    columns = [output.values(of_name) for of_name in names]
    if all(column.count(None) == len(column) for column in columns):
        return [], np.empty(0)
    seeds = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    known = [(n, v) for n, seed in enumerate(seeds) if (v := value_of(seed, name)) is not None]
    return [n for n, _ in known], np.array([value for _, value in known], np.float64)


def _worst(batch: Batch, name: str) -> Floats:
    """Return the largest magnitude of each seed that has one; NaN if one of its outputs has NaN."""
    worst = np.full(len(batch), _NONE)
    for part in batch.judged:
        rows = np.array(part.rows)
        for output in part.outputs:
            places, values = _values(output, name)
            worst[rows[places]] = np.maximum(worst[rows[places]], np.abs(values))
    known: Floats = worst[worst != _NONE]
    return known


def _green(outputs: Iterable[Mapping[str, Any]]) -> bool | None:
    """Return whether an iteration's tests passed; None for a kernel's seed, which has no tests."""
    outcomes = {output["outcome"] for output in outputs if output.get("outcome") is not None}
    return False if outcomes & _RED else True if _GREEN in outcomes else None


def _count(words: Iterable[str | None]) -> dict[str, int]:
    return {str(word): number for word, number in sorted(Counter(filter(None, words)).items())}
