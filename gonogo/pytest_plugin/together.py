"""Settle comparisons that are open one by one by all seeds of their test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from gonogo.public.recorded import HOLLOW, SUSPECT, Comparison
from gonogo.pytest_plugin.records import Record

Group = Sequence[tuple[Record, int]]
"""The seeds of a test's n-th comparison: records, and its place there."""


def settled(records: Sequence[Record]) -> list[Record]:
    """Return the records as all seeds of each test settle them, by the rule of `gonogo.pool`.

    A comparison of a passed test becomes a hollow pass where its seeds are no chance; other records
    stay the same objects. The n-th comparison of a test is compared with the n-th of its other
    seeds.
    """
    changes: dict[int, dict[int, Comparison]] = {}
    for group in _groups(records):
        if len(group) > 1:
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


def suspect(records: Sequence[Record]) -> list[Record]:
    """Return the passed records of comparisons that are suspect with every seed: not green."""
    by_id: dict[int, Record] = {}
    for group in _groups(records):
        if all(record.comparisons[place].explanation == SUSPECT for record, place in group):
            by_id |= {id(record): record for record, _ in group if _is_green(record)}
    return list(by_id.values())


def _groups(records: Sequence[Record]) -> list[Group]:
    groups: dict[Hashable, list[tuple[Record, int]]] = {}
    for record in records:
        for place, comparison in enumerate(record.comparisons):
            if comparison.explanation != "not_judged":
                groups.setdefault((record.name, comparison.name, place), []).append((record, place))
    return list(groups.values())


def _is_green(record: Record) -> bool:
    # a message beside a pass is that of an xpass, which is no green
    return record.outcome == "passed" and not record.message


def _settled(group: Group) -> list[tuple[Record, int, Comparison]]:
    """Return the comparisons of a group that its seeds together make hollow passes."""
    # Imported here: they take pydantic and NumPy along, and most runs judge nothing
    from gonogo.flakiness.suspects import settled_verdict, unexplained_together
    from gonogo.judging.comparison import settled_words

    together = unexplained_together(
        (record.seed, record.comparisons[place].outputs) for record, place in group
    )
    changed = []
    for record, place in group if together else ():
        comparison = record.comparisons[place]
        verdict = settled_verdict(comparison.verdict, comparison.outputs, together)
        if _is_green(record) and verdict == HOLLOW != comparison.verdict:
            words = settled_words(comparison.words, verdict, together)
            hollow = replace(
                comparison, verdict=verdict.value, explanation="unexplained", words=words
            )
            changed.append((record, place, hollow))
    return changed
