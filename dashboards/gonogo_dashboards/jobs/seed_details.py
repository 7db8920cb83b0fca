"""One seed of a job: its numbers by output, its facts, and the command that reproduces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.reports.check_line import check_line
from gonogo.spec import diagnoses, verdicts
from gonogo.spec.statistics import STATISTICS
from gonogo.spec.tolerances import for_output
from gonogo_dashboards.kit import arithmetic_view, comparators_view, imported, words
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import seeds as results
from gonogo_service.results.seed_order import SeedOrder

_SHOWN = tuple(row for row in STATISTICS.values() if row.label)
"""The statistics that have a column, with labels and meanings."""
_MAX_OUTPUTS = 24


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
    stored = results.get(session, job.id, *pair)
    place = order.place(*pair)
    if stored is None and place is None:
        return None
    near = [
        None if place is None or not 0 <= neighbor < len(order) else order.at(neighbor)
        for neighbor in ((place or 0) - 1, (place or 0) + 1)
    ]
    before, after = (
        None if neighbor_pair is None else urls.job(job.id, output=output, seed=neighbor_pair)
        for neighbor_pair in near
    )
    seed, repeat = pair
    result: Mapping[str, Any] = stored or {}
    outputs = _outputs(result.get("outputs") or {}, job.test.get("tolerance", {}))
    verdict = result.get("verdict")
    return SeedDetails(
        seed=seed,
        repeat=repeat,
        verdict=verdict,
        sentence=words.sentence(verdict)
        if verdict
        else ("It never ran." if job.state.final else "It has not finished yet."),
        facts=_facts(result),
        message=result.get("message"),
        columns=tuple((row.heading, row.sentence) for row in _SHOWN),
        outputs=tuple(outputs[:_MAX_OUTPUTS]),
        arithmetic=_arithmetic(
            result.get("outputs") or {},
            [numbers.output for numbers in outputs[:_MAX_OUTPUTS]],
        ),
        left_out=max(0, len(outputs) - _MAX_OUTPUTS),
        check=check(job, seed, outputs[0].output if outputs else ""),
        before=before,
        after=after,
    )


def _facts(result: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    facts = []
    if result.get("device"):
        facts.append(("device", str(result["device"])))
    if result.get("duration_ms") is not None:
        facts.append(("duration", words.duration(result["duration_ms"] / 1000)))
    if result.get("position") is not None:
        facts.append(
            ("ran before it in the same process", words.count(int(result["position"]), "kernel"))
        )
    if result.get("arrival") is not None:
        facts.append(("finished", f"as number {result['arrival']:,}"))
    return tuple(facts)


def _outputs(
    stored: Mapping[str, Mapping[str, Any]], tolerance: Mapping[str, Any]
) -> list[OutputNumbers]:
    """Return the outputs, worst first."""
    return [
        OutputNumbers(
            output=name,
            verdict=str(output["verdict"]),
            explanation=output.get("explanation"),
            numbers=tuple(words.reported_number(output.get(row.name)) for row in _SHOWN),
            nonfinite=dict(output.get("nonfinite_kinds") or {}),
            digest=output.get("digest"),
            decided=comparators_view.decided(declared, output)
            if (declared := for_output(tolerance, name))
            else "",
            why=diagnoses.sentence_of(output),
        )
        for name in verdicts.worst_first(stored)
        for output in (stored[name],)
    ]


def _arithmetic(
    stored: Mapping[str, Mapping[str, Any]], outputs: Sequence[str]
) -> tuple[ArithmeticLine, ...]:
    lines = (arithmetic_view.of_seed(output, stored[output]) for output in outputs)
    return tuple(line for line in lines if line is not None)


def check(job: JobRow, seed: int, output: str) -> str | None:
    """Return the command that runs a seed of the job on the reader's own machine.

    None for an imported job: nothing here can run it.
    """
    if imported.read(job) is not None:
        return None
    return check_line(
        job.test,
        build=job.build,
        executor=job.target.executor,
        seed=seed,
        output=output,
        reference=job.reference,
        context=job.context,
    )


def shown_columns(details: SeedDetails) -> Sequence[int]:
    """Return the columns that have a number in any output."""
    return [
        place
        for place in range(len(_SHOWN))
        if any(output.numbers[place] is not None for output in details.outputs)
    ]
