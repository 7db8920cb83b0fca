"""Seeds of a job by their numbers: the details of one, the worst in a table, the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness import device_times
from gonogo.spec import diagnoses
from gonogo.spec.statistics import STATISTICS
from gonogo.spec.tolerances import for_output
from gonogo.spec.verdicts import Explanation, worst_first
from gonogo_dashboards.jobs import request
from gonogo_dashboards.kit import arithmetic_view, comparators_view, words
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.records import from_object
from gonogo_service.results import seeds as results
from gonogo_service.results.seed_order import SeedOrder
from gonogo_service.results.seeds import KINDS, StoredSeed

_SHOWN = tuple(name for name, row in STATISTICS.items() if row.label)
"""The statistics that have a column."""
_WORST = ("tolerance_ratio", "rounding_ratio", "max_abs")
_MAX_OUTPUTS = 24
_EXPLANATIONS = [explanation.value for explanation in Explanation]
"""Worst first."""
_COMPARED = ("max_abs", "ulp_max", "mismatch_fraction")


@dataclass(frozen=True)
class OutputLine:
    """One output of a seed: its judgment, and its numbers by statistic."""

    output: str
    verdict: str
    explanation: str | None
    numbers: Mapping[str, float | None]
    nonfinite: Mapping[str, str]
    decided: str
    """The comparators that it misses, else all that it meets; "" where none is declared. In the
    table of the worst seeds also "" where allclose is the only one."""
    why: str
    """The fault that is named, else the reason and the places; "" where rounding explains it."""


@dataclass(frozen=True, kw_only=True)
class SeedLine:
    """A (seed, repeat) in the table of the worst; its worst output comes first."""

    seed: int
    repeat: int
    verdict: str | None
    """null while it hasn't finished"""
    device: str | None
    message: str | None
    outputs: tuple[OutputLine, ...]


@dataclass(frozen=True, kw_only=True)
class SeedDetails(SeedLine):
    """A (seed, repeat) of the job that the reader chose."""

    sentence: str
    facts: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str, str], ...]
    """(statistic, heading, meaning) of the numbers that an output has"""
    arithmetic: tuple[ArithmeticLine, ...]
    """The arithmetic and the detection limits of each output that has them."""
    left_out: int
    """Outputs that are not shown; none of them is worse than those that are."""
    check: str | None
    before: str | None
    after: str | None
    """The pages of its neighbors."""


@dataclass(frozen=True)
class ComparisonLine:
    """One output against that of the reference build: the worst of the seeds shown."""

    output: str
    within: bool | None
    """Whether the test's tolerance holds between the two; None without one."""
    max_abs: float | None
    ulp_max: float | None
    mismatch_fraction: float | None
    reference_explanation: str
    """The explanation of the reference build's own error against float64."""


def requested(query: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the (seed, repeat) that a page's address names, if any."""
    seed, repeat = query.get("seed", ""), query.get("repeat", "") or "0"
    if all(text.isascii() and text.isdigit() and len(text) <= 16 for text in (seed, repeat)):
        return int(seed), int(repeat)
    return None


def read(
    session: Session, job: JobRow, pair: tuple[int, int], output: str | None
) -> SeedDetails | None:
    """Return the details of a (seed, repeat); None where the job has no such seed."""
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
    stored, place = results.get(session, job.id, *pair), order.place(*pair)
    if stored is None and place is None:
        return None
    seen = {} if stored is None else stored.outputs
    names = worst_first(seen)[:_MAX_OUTPUTS]
    tolerance = job.test.get("tolerance", {})
    lines = [_line(name, seen[name], tolerance, _SHOWN) for name in names]
    unfinished = "It never ran." if job.state.final else "It has not finished yet."
    arithmetic = (arithmetic_view.of_seed(name, seen[name]) for name in names)

    def neighbor(step: int) -> str | None:
        if place is None or not 0 <= place + step < len(order):
            return None
        return urls.job(job.id, output=output, seed=order.at(place + step))

    return SeedDetails(
        seed=pair[0],
        repeat=pair[1],
        verdict=stored and stored.verdict,
        device=stored and stored.device,
        message=stored and stored.message,
        outputs=tuple(lines),
        sentence=words.sentence(stored.verdict) if stored else unfinished,
        facts=_facts(stored) if stored else (),
        columns=tuple(
            (name, STATISTICS[name].heading, STATISTICS[name].sentence)
            for name in _SHOWN
            if any(line.numbers[name] is not None for line in lines)
        ),
        arithmetic=tuple(line for line in arithmetic if line is not None),
        left_out=len(seen) - len(names),
        check=request.check(job, pair[0], names[0] if names else ""),
        before=neighbor(-1),
        after=neighbor(1),
    )


def worst_line(seed: StoredSeed, tolerance: Mapping[str, Any]) -> SeedLine:
    """Return a stored (seed, repeat) as a line; `tolerance` is its test's, {} for none."""
    lines = [_line(name, seen, tolerance, _WORST, True) for name, seen in seed.outputs.items()]
    return from_object(SeedLine, seed, outputs=tuple(lines))


def _line(
    name: str,
    output: Mapping[str, Any],
    tolerance: Mapping[str, Any],
    statistics: Sequence[str],
    beyond_allclose: bool = False,
) -> OutputLine:
    """Return a line of an output; beyond_allclose: only another comparator is worth naming."""
    declared = for_output(tolerance, name)
    is_named = comparators_view.others(declared) if beyond_allclose else declared
    return OutputLine(
        output=name,
        verdict=str(output["verdict"]),
        explanation=output.get("explanation"),
        numbers={one: words.reported_number(output.get(one)) for one in statistics},
        nonfinite=dict(output.get(KINDS) or {}),
        decided=comparators_view.decided(declared, output) if is_named else "",
        why=diagnoses.sentence_of(output),
    )


def _facts(seed: StoredSeed) -> tuple[tuple[str, str], ...]:
    spent, kernel, before = seed.duration_ms, seed.kernel_s, seed.position
    facts = (
        ("device", seed.device),
        ("duration", spent is not None and words.duration(spent / 1000)),
        ("device time", kernel is not None and device_times.spelled(kernel)),
        ("ran before it in the same process", before is not None and words.count(before, "kernel")),
        ("finished", f"as number {seed.arrival:,}"),
    )
    return tuple((label, text) for label, text in facts if text)


def compared(seeds: Sequence[StoredSeed]) -> tuple[ComparisonLine, ...]:
    """Return a line per output that is compared with the reference build's, by name."""
    entries_by_output: dict[str, list[Mapping[str, Any]]] = {}
    for seed in seeds:
        for name, output in seed.outputs.items():
            if entry := output.get("reference"):
                entries_by_output.setdefault(name, []).append(entry)
    return tuple(_comparison(name, entries) for name, entries in sorted(entries_by_output.items()))


def _comparison(output: str, entries: Sequence[Mapping[str, Any]]) -> ComparisonLine:
    answers = [entry["within"] for entry in entries if entry["within"] is not None]
    largest = {
        name: max((entry[name] for entry in entries if entry.get(name) is not None), default=None)
        for name in _COMPARED
    }
    return ComparisonLine(
        output=output,
        within=all(answers) if answers else None,
        reference_explanation=min((one["explanation"] for one in entries), key=_EXPLANATIONS.index),
        **largest,
    )
