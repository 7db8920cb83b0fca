"""Seeds of a job by their numbers: the details of one, the worst in a table, the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
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

_SHOWN = tuple(row for row in STATISTICS.values() if row.label)
"""The statistics that have a column, with labels and meanings."""
_MAX_OUTPUTS = 24
_EXPLANATIONS = [explanation.value for explanation in Explanation]
"""Worst first."""
_COMPARED = ("max_abs", "ulp_max", "mismatch_fraction")


@dataclass(frozen=True)
class OutputNumbers:
    """One output of the seed; `numbers` are in the order of the view's columns."""

    output: str
    verdict: str
    explanation: str | None
    numbers: tuple[float | None, ...]
    nonfinite: Mapping[str, str]
    digest: str | None
    decided: str
    """The comparators that it misses, else all that it meets; "" where none is declared."""
    why: str
    """The fault that is named, else the reason and the places; "" where rounding explains it."""


@dataclass(frozen=True)
class SeedDetails:
    """A (seed, repeat) of the job; `verdict` is null while it hasn't finished."""

    seed: int
    repeat: int
    verdict: str | None
    sentence: str
    facts: tuple[tuple[str, str], ...]
    message: str | None
    columns: tuple[tuple[str, str], ...]
    outputs: tuple[OutputNumbers, ...]
    arithmetic: tuple[ArithmeticLine, ...]
    """The arithmetic and the detection limits of each output that has them."""
    left_out: int
    """Outputs that are not shown; none of them is worse than those that are."""
    check: str | None
    before: str | None
    after: str | None
    """The pages of its neighbors."""


@dataclass(frozen=True)
class OutputLine:
    """One output in the table of the worst seeds: its verdict and its main numbers."""

    output: str
    verdict: str
    explanation: str | None
    tolerance_ratio: float | None
    rounding_ratio: float | None
    max_abs: float | None
    nonfinite: Mapping[str, str]
    decided: str
    """The comparators that decided, where allclose isn't the only one."""


@dataclass(frozen=True)
class SeedLine:
    """A (seed, repeat) in the table of the worst; its worst output comes first."""

    seed: int
    repeat: int
    verdict: str
    device: str | None
    duration_ms: float | None
    message: str | None
    outputs: tuple[OutputLine, ...]


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
    result: Mapping[str, Any] = stored or {}
    seen: Mapping[str, Mapping[str, Any]] = result.get("outputs") or {}
    names = worst_first(seen)[:_MAX_OUTPUTS]
    numbers = {
        name: [words.reported_number(seen[name].get(row.name)) for row in _SHOWN] for name in names
    }
    columns = [
        column
        for column in range(len(_SHOWN))
        if any(of_output[column] is not None for of_output in numbers.values())
    ]
    verdict, tolerance = result.get("verdict"), job.test.get("tolerance", {})
    unfinished = "It never ran." if job.state.final else "It has not finished yet."
    lines = (arithmetic_view.of_seed(name, seen[name]) for name in names)

    def neighbor(step: int) -> str | None:
        if place is None or not 0 <= place + step < len(order):
            return None
        return urls.job(job.id, output=output, seed=order.at(place + step))

    return SeedDetails(
        *pair,
        verdict=verdict,
        sentence=words.sentence(verdict) if verdict else unfinished,
        facts=tuple(_facts(result)),
        message=result.get("message"),
        columns=tuple((_SHOWN[place].heading, _SHOWN[place].sentence) for place in columns),
        outputs=tuple(
            _output(name, seen[name], [numbers[name][place] for place in columns], tolerance)
            for name in names
        ),
        arithmetic=tuple(line for line in lines if line is not None),
        left_out=max(0, len(seen) - len(names)),
        check=request.check(job, pair[0], names[0] if names else ""),
        before=neighbor(-1),
        after=neighbor(1),
    )


def _output(
    name: str,
    output: Mapping[str, Any],
    numbers: Sequence[float | None],
    tolerance: Mapping[str, Any],
) -> OutputNumbers:
    declared = for_output(tolerance, name)
    return OutputNumbers(
        output=name,
        verdict=str(output["verdict"]),
        explanation=output.get("explanation"),
        numbers=tuple(numbers),
        nonfinite=dict(output.get(KINDS) or {}),
        digest=output.get("digest"),
        decided=comparators_view.decided(declared, output) if declared else "",
        why=diagnoses.sentence_of(output),
    )


def _facts(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    known = (
        ("device", "device", str),
        ("duration", "duration_ms", lambda spent: words.duration(spent / 1000)),
        (
            "ran before it in the same process",
            "position",
            lambda count: words.count(int(count), "kernel"),
        ),
        ("finished", "arrival", lambda number: f"as number {number:,}"),
    )
    return [
        (label, shown(result[name]))
        for label, name, shown in known
        if result.get(name) not in (None, "")
    ]


def worst_line(seed: StoredSeed, tolerance: Mapping[str, Any]) -> SeedLine:
    """Return a stored (seed, repeat) as a line; `tolerance` is its test's, {} for none."""
    lines = []
    for name, output in seed.outputs.items():
        declared = for_output(tolerance, name)
        lines.append(
            OutputLine(
                name,
                output["verdict"],
                output["explanation"],
                output.get("tolerance_ratio"),
                output.get("rounding_ratio"),
                output.get("max_abs"),
                dict(output.get(KINDS) or {}),
                comparators_view.decided(declared, output)
                if comparators_view.others(declared)
                else "",
            )
        )
    return from_object(SeedLine, seed, outputs=tuple(lines))


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
