"""Test whether flips point one way: the sign test over rows, pooled over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from gonogo.spec.compared_outputs import FlipCounts


@dataclass(frozen=True)
class FlipsSummary(FlipCounts):
    """Outputs that differ between a build and its reference build, pooled over seeds."""

    output: str
    seeds: int
    probability: float
    """Sign test over rows, two-sided"""
    one_way: bool
    """Whether the flips point one way"""
    words: str


def pooled(counts: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[FlipsSummary, ...]:
    """Return the flips of each output over several seeds, by name.

    counts: output -> the counts of gonogo.judgment.pairs.flips_of, one for each seed. Repeats of a
    seed aren't independent: the caller gives one of them.
    """
    return tuple(_pooled(name, entries) for name, entries in sorted(counts.items()) if entries)


def pooled_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[FlipsSummary, ...]:
    """Return the same from result rows: the first repeat of each seed that has counts."""
    counts: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        for name, statistics in row["outputs"].items():
            if flips := (statistics.get("reference") or {}).get("flips"):
                counts.setdefault(name, {}).setdefault(row["seed"], flips)
    return pooled({name: list(seeds.values()) for name, seeds in counts.items()})


def _pooled(output: str, entries: Sequence[Mapping[str, Any]]) -> FlipsSummary:
    # Imported here because it loads NumPy, which the API doesn't need.
    from gonogo.judgment.pairs import SIGN_LIMIT, sign_probability

    names = [field.name for field in fields(FlipCounts)]
    total = FlipCounts(**{name: sum(int(entry[name]) for entry in entries) for name in names})
    probability = sign_probability(total.rows_away, total.rows_toward)
    one_way = probability <= SIGN_LIMIT
    return FlipsSummary(
        **asdict(total),
        output=output,
        seeds=len(entries),
        probability=probability,
        one_way=one_way,
        words=_sentence(total, probability, one_way),
    )


def _sentence(total: FlipCounts, probability: float, one_way: bool) -> str:
    if not total.differing:
        return "no element differs"
    flips, rows, direction = max(
        (total.away, total.rows_away, "away from"),
        (total.toward, total.rows_toward, "toward"),
        key=lambda side: side[1],
    )
    both = total.away and total.toward
    way = "one way" if one_way else "both ways" if both else "too few rows to tell"
    return (
        f"{way}: {flips} of {total.differing} flips point {direction} zero, in {rows} of"
        f" {total.rows_away + total.rows_toward} rows (sign test: {probability:.2g})"
    )
