"""One seed of a job on the job's page: its numbers output by output, where it ran, and the command
that runs it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec import verdicts
from gonogo_dashboards.kit import imported, words
from gonogo_storage.flags.evidence import check_line
from gonogo_storage.jobs.job import Job
from gonogo_storage.seeds import results
from gonogo_storage.seeds.seed_order import SeedOrder

STATISTICS = (
    ("tolerance_ratio", "of the tolerance", "1 = where green turns red"),
    (
        "budget_ratio",
        "error ÷ budget",
        "the largest error over the worst that rounding can do there",
    ),
    ("chi", "chi", "the errors over their own standard deviations, rms"),
    ("row_z", "along a constant per row", "in standard deviations of what rounding leaves"),
    ("xhat_z", "along x̂ in a row", "in standard deviations of what rounding leaves"),
    ("scale_z", "along the result itself", "in standard deviations of what rounding leaves"),
    ("max_abs", "max |e|", "the largest error"),
    ("rms", "rms e", "root mean square error"),
    ("ulp_max", "max ulp", "the largest distance in units in the last place"),
    ("pcc_deficit", "1 − PCC", "what correlation lacks of 1"),
    (
        "mismatch_fraction",
        "values that differ",
        "share of the values that are not the rounded reference",
    ),
)
"""Statistic, what it is called, what it means."""
_MAX_OUTPUTS = 24


@dataclass(frozen=True)
class OutputNumbers:
    """One output of the seed. `numbers` in the order of the view's columns; `beyond`: times what
    rounding explains, above 1 it isn't.
    """

    output: str
    verdict: str
    explanation: str | None
    beyond: float | None
    numbers: tuple[float | None, ...]
    nonfinite: Mapping[str, str]
    digest: str | None


@dataclass(frozen=True)
class SeedDetails:
    """A (seed, repeat) of the job; `verdict` null: it has not come (yet)."""

    seed: int
    repeat: int
    verdict: str | None
    sentence: str
    facts: tuple[tuple[str, str], ...]
    message: str | None
    columns: tuple[tuple[str, str], ...]
    outputs: tuple[OutputNumbers, ...]
    left_out: int
    """Outputs that are not shown, none of them worse than those that are."""
    check: str | None
    before: str | None
    after: str | None
    """The pages of its neighbours."""


def wanted(query: Mapping[str, str]) -> tuple[int, int] | None:
    """The (seed, repeat) that a page's address names, if any."""
    seed, repeat = query.get("seed", ""), query.get("repeat", "") or "0"
    if all(text.isascii() and text.isdigit() and len(text) <= 16 for text in (seed, repeat)):
        return int(seed), int(repeat)
    return None


def read(
    session: Session, job: Job, pair: tuple[int, int], output: str | None
) -> SeedDetails | None:
    """The details of a (seed, repeat); None where the job has no such one."""
    order = SeedOrder.of(job.request, job.suspects)
    found = results.get(session, job.id, *pair)
    place = order.place(*pair)
    if found is None and place is None:
        return None
    near = [
        None if place is None or not 0 <= each < len(order) else order.at(each)
        for each in ((place or 0) - 1, (place or 0) + 1)
    ]
    before, after = (
        None if each is None else urls.job(job.id, output=output, seed=each) for each in near
    )
    seed, repeat = pair
    said: Mapping[str, Any] = found or {}
    outputs = _outputs(said.get("outputs") or {})
    verdict = said.get("verdict")
    return SeedDetails(
        seed=seed,
        repeat=repeat,
        verdict=verdict,
        sentence=words.sentence(verdict)
        if verdict
        else ("It never ran." if job.state.final else "It has not come back yet."),
        facts=_facts(said),
        message=said.get("message"),
        columns=tuple((label, meaning) for _, label, meaning in STATISTICS),
        outputs=tuple(outputs[:_MAX_OUTPUTS]),
        left_out=max(0, len(outputs) - _MAX_OUTPUTS),
        check=check(job, seed, outputs[0].output if outputs else ""),
        before=before,
        after=after,
    )


def _facts(said: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    facts = []
    if said.get("device"):
        facts.append(("device", str(said["device"])))
    if said.get("duration_ms") is not None:
        facts.append(("took", words.duration(said["duration_ms"] / 1000)))
    if said.get("position") is not None:
        facts.append(("ran before it in its process", words.count(int(said["position"]), "kernel")))
    if said.get("arrival") is not None:
        facts.append(("came back", f"as number {said['arrival']:,}"))
    return tuple(facts)


def _outputs(told: Mapping[str, Mapping[str, Any]]) -> list[OutputNumbers]:
    """Worst first."""
    order = {
        verdict: rank
        for rank, verdict in enumerate(
            words.ordered({str(each["verdict"]) for each in told.values()})
        )
    }
    found = [
        OutputNumbers(
            output=name,
            verdict=str(each["verdict"]),
            explanation=each.get("explanation"),
            beyond=verdicts.evidence(each),
            numbers=tuple(words.reported_number(each.get(statistic)) for statistic, _, _ in STATISTICS),
            nonfinite=dict(each.get("nonfinite_kinds") or {}),
            digest=each.get("digest"),
        )
        for name, each in told.items()
    ]
    return sorted(found, key=lambda each: (order[each.verdict], -(each.beyond or 0.0), each.output))


def check(job: Job, seed: int, output: str) -> str | None:
    """The command that runs a seed of the job again on the reader's own machine; None of what was
    imported: nothing here can run it.
    """
    if imported.read(job) is not None:
        return None
    return check_line(
        job.canonical,
        build=job.build,
        executor=job.executor,
        seed=seed,
        output=output,
        reference=job.reference,
        context=job.context,
    )


def shown_columns(details: SeedDetails) -> Sequence[int]:
    """The statistics that any of the outputs has: a column without a number says nothing."""
    return [
        place
        for place in range(len(STATISTICS))
        if any(each.numbers[place] is not None for each in details.outputs)
    ]
