"""Settle comparisons that are suspect one by one by all seeds of their test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from gonogo.public.recorded import Comparison
from gonogo_pytest.records import Record

SUSPECT = "suspect"


def settled(records: Sequence[Record]) -> list[Record]:
    """Return the records as all seeds of each test settle them, by the rule of `gonogo.pool`.

    A suspect comparison of a passed test becomes a hollow pass where its seeds are no chance; other
    records stay the same objects. The n-th comparison of a test is compared with the n-th of its
    other seeds.
    """
    groups: dict[Hashable, list[tuple[Record, int]]] = {}
    for record in records:
        for place, comparison in enumerate(record.comparisons):
            if comparison.spec is not None:
                groups.setdefault((record.name, comparison.name, place), []).append((record, place))
    changes: dict[int, dict[int, Comparison]] = {}
    for group in groups.values():
        if any(record.comparisons[place].explanation == SUSPECT for record, place in group):
            for record, place, comparison in _settled(group):
                changes.setdefault(id(record), {})[place] = comparison
    return [
        replace(
            record,
            comparisons=[
                changes[id(record)].get(place, comparison)
                for place, comparison in enumerate(record.comparisons)
            ],
        )
        if id(record) in changes
        else record
        for record in records
    ]


def _settled(group: Sequence[tuple[Record, int]]) -> list[tuple[Record, int, Comparison]]:
    """Return the comparisons of a group that its seeds together make hollow passes."""
    # Imported here: they take pydantic and NumPy along, and most runs have no suspect comparison
    from gonogo.flakiness.suspects import settled_verdict, unexplained_together
    from gonogo.judging.comparison import settled_words
    from gonogo.spec.verdicts import Verdict, explain

    entries: list[dict[str, dict[str, Any]]] = [
        {
            name: {**statistics, "explanation": explain(statistics)}
            for name, statistics in record.comparisons[place].outputs.items()
        }
        for record, place in group
    ]
    together = unexplained_together(
        (record.seed, outputs) for (record, _), outputs in zip(group, entries, strict=True)
    )
    changed = []
    for (record, place), outputs in zip(group, entries, strict=True):
        comparison = record.comparisons[place]
        verdict = settled_verdict(comparison.verdict, outputs, together)
        # a message beside a pass is that of an xpass, which is no green
        is_green = record.outcome == "passed" and not record.message
        if is_green and comparison.explanation == SUSPECT and verdict is Verdict.pass_by_tolerance:
            words = settled_words(comparison.words, verdict, together)
            hollow = replace(
                comparison, verdict=verdict.value, explanation="unexplained", words=words
            )
            changed.append((record, place, hollow))
    return changed
