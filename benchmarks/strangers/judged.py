"""Judge strangers as `gonogo check` does, with the arithmetic model `generic`.

Up to 8 seeds; suspects are pooled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from benchmarks.strangers.cases import CASES, Case
from benchmarks.strangers.plugin import Stranger
from benchmarks.strangers.rights import BASES, RIGHTS
from benchmarks.strangers.showing import Showing, showing
from benchmarks.strangers.wrongs import WRONGS
from gonogo.flakiness.suspects import pooled_explanations
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.spec.verdicts import Explanation, Verdict

SEEDS = 8


@dataclass
class Record:
    """The verdicts about one stranger on one test."""

    build: str
    case: str
    flagged: bool = False
    seeds: int = 0
    """Until it was flagged, or all of them."""
    showing: Showing = Showing.hidden
    figures: dict[str, float] = field(default_factory=dict)
    """Per "output statistic" the largest over the seeds, of the statistics that explain."""
    verdicts: list[str] = field(default_factory=list)


@cache
def inputs_of(case: Case, seed: int) -> tuple[Any, Any]:
    """Raw and given tensors: the same for every stranger."""
    raw = generate(case.test, seed)
    return raw, quantise(case.test, raw)


def put_to_test(build: str, case: Case, seeds: int = SEEDS, clean: str | None = None) -> Record:
    """Judge a stranger.

    Flagged: a seed whose verdict is red or hollow (`fail`, `pass_by_tolerance`), or, when all seeds
    have run, suspect seeds whose pooled statistics are not explained either (what the job says of a
    suspect after more seeds).

    Ends at the first such seed, once the fault (if there is one: `clean` is the build without) has
    shown, too.
    """
    record = Record(build, case.name)
    kernel, twin = Stranger(build), Stranger(clean) if clean else None
    spec = case.test.canonical()
    rows: dict[str, list[dict[str, Any]]] = {}
    suspect = False
    for seed in range(seeds):
        raw, given = inputs_of(case, seed)
        outputs = kernel.run(spec, dict(given))
        if twin is not None:
            shown = showing(spec, given, outputs, twin.run(spec, dict(given)))
            record.showing = max(record.showing, shown, key=lambda level: level.value)
        if record.flagged:
            if record.showing is Showing.shows:
                break
            continue
        judgement = judge(case.test, raw, given, outputs, arithmetic="generic")
        _note(record, judgement)
        record.seeds = seed + 1
        for name, output in judgement.outputs.items():
            rows.setdefault(name, []).append(dict(output.statistics))
        record.flagged = (
            judgement.explanation is Explanation.unexplained or judgement.verdict is Verdict.fail
        )
        suspect = suspect or judgement.explanation is Explanation.suspect
        if record.flagged and twin is None:
            break
    if suspect and not record.flagged:
        record.flagged = any(
            level in (Explanation.suspect, Explanation.unexplained)
            for level in pooled_explanations(rows).values()
        )
    return record


def _note(record: Record, judgement: SeedJudgement) -> None:
    record.verdicts.append(judgement.verdict.value)
    for name, output in judgement.outputs.items():
        for statistic, value in output.statistics.items():
            if isinstance(value, int | float) and (
                statistic in ("budget_ratio", "chi", "nonfinite")
                or statistic.endswith(("_z", "_z_max"))
            ):
                key = f"{name} {statistic}"
                record.figures[key] = max(record.figures.get(key, 0.0), abs(float(value)))


def exotic(record: Record) -> bool:
    """Whether it is a right kernel that is counted apart."""
    return record.build.startswith("right:") and RIGHTS[record.build.removeprefix("right:")].exotic


def rights(seeds: int, cases: tuple[Case, ...] = CASES, only: str = "") -> list[Record]:
    """Every right kernel on every test that it is right for."""
    return [
        put_to_test(f"right:{right.name}", case, seeds)
        for case in cases
        for right in RIGHTS.values()
        if case.test.kernel in right.kernels
        and not (right.centred_only and case.offset)
        and only in right.name
    ]


def wrongs(seeds: int, cases: tuple[Case, ...] = CASES, only: str = "") -> list[Record]:
    """Every wrong kernel on every test; which right arithmetic it is made of goes round."""
    records = []
    for number, case in enumerate(cases):
        for place, (kernel, name) in enumerate(WRONGS):
            if kernel != case.test.kernel or only not in name:
                continue
            rest = f"{kernel}:{name}:{BASES[(place + number) % len(BASES)].name}"
            records.append(put_to_test(f"wrong:{rest}", case, seeds, f"clean:{rest}"))
    return records
