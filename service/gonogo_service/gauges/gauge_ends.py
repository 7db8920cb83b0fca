"""The end of a gauge, under its job's lock.

If no tolerance works, the gauge tries other inputs first. Then come the report and the flag
`blunt_test`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.elsewhere import OtherInputs, beyond, candidates, compared
from gonogo.gauge.kernels import Kind
from gonogo.gauge.report import findings, report
from gonogo.gauge.slack import slack
from gonogo.gauge.summary import GaugeCommand, GaugeReport, MeasuredTest, MutantMisses, TriedSummary
from gonogo.reports.check_line import check_line, gauge_line, left_out_of_line
from gonogo.spec.builds import EMULATOR
from gonogo.spec.test_spec import TestSpec
from gonogo_service.flags import store as flags
from gonogo_service.flags.evidence_kinds import GaugeEvidence, MutantMiss
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.gauges import gauge_rows, gauge_work
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs import events
from gonogo_service.jobs.events import Progress
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests.variants import Variant

SEARCH_SEEDS = 1
"""Number of seeds for each of the other inputs: they are suggestions, not measurements."""
_ANY_SIZE = 2**62

Row = Mapping[str, Any]


def conclude(session: Session, job: JobRow, state: JobState, *, now: datetime) -> bool:
    """Conclude a gauge whose chunks are all closed; return whether it has ended.

    It hasn't if it continues with other inputs: then the job stays open. A canceled gauge gets a
    report of what has run, and changes no flag.
    """
    gauge = session.get_one(GaugeRow, job.id, populate_existing=True)
    test = TestSpec.parse(gauge.test, max_elements=_ANY_SIZE)
    rows = gauge_rows.read(session, gauge)
    gates = job.request.get("gates") or ()
    own_rows = [row for row in rows if row["where"] is None]
    here = report(test, own_rows, gates)
    is_useless = here.false_alarms.of and not here.advice.works
    is_searched = state is JobState.finished and gauge.search and not gauge.elsewhere
    if is_searched and is_useless and (others := candidates(test)):
        _add_other_inputs(session, job, gauge, others, now=now)
        return False
    tried = [
        _tried(test, here, inputs, [row for row in rows if row["where"] == place])
        for place, inputs in enumerate(gauge.elsewhere)
    ]
    gauge.sharpness = here.sharpness
    gauge.misses = {name: [rate.count, rate.of] for name, rate in here.misses.parts.items()}
    gauge.slack = slack(test, own_rows, here.advice) if state is JobState.finished else None
    gauge.words = _brief(here, tried)
    sentences = {row["part"]: row["sentence"] for row in rows if row.get("sentence")}
    gauge.report = GaugeReport(
        **vars(here),
        sentences=sentences,
        elsewhere=tried,
        beyond=beyond(tried).strip(),
        command=_command(test.canonical(), gauge, gates),
    )
    session.flush()
    if state is JobState.finished and here.sharpness is Sharpness.blunt:
        _open(session, job, gauge, gauge.report, rows, now=now)
    elif state is JobState.finished and here.sharpness is Sharpness.sharp and not here.broken:
        _resolve(session, gauge, here, now=now)
    return True


def _add_other_inputs(
    session: Session, job: JobRow, gauge: GaugeRow, others: Sequence[OtherInputs], *, now: datetime
) -> None:
    """Add work to measure the same parts with other inputs."""
    gauge.elsewhere = list(others)
    own_parts = list(gauge.parts)
    seeds = gauge.seeds[:SEARCH_SEEDS]
    for where in range(len(others)):
        parts = [replace(part, where=where) for part in own_parts]
        first = len(gauge.parts)
        gauge.parts = [*gauge.parts, *parts]
        gauge_work.add(session, job, parts, first, seeds)
    events.add(session, job, Progress(gauge.done, job.total, {}), now=now)
    session.flush()


def _brief(here: MeasuredTest, tried: Sequence[TriedSummary]) -> str:
    """Return the findings in a line or two; the report has all of them."""
    if here.advice.works or not here.advice.tolerance:
        return here.words
    able = [attempt.name for attempt in tried if attempt.advice.works and attempt.gains]
    none = "No tolerance works with these inputs"
    none += f'; with "{able[0]}" one does.' if able else "."
    return " ".join([*findings(here), none])


def _tried(
    test: TestSpec, here: MeasuredTest, where: OtherInputs, rows: Sequence[Row]
) -> TriedSummary:
    return compared(here, where, report(test.replace(inputs=where.inputs), rows))


def _command(
    canonical: Mapping[str, Any], gauge: GaugeRow, gates: Sequence[str] = ()
) -> GaugeCommand:
    """Return the command line that repeats the gauge, and the fields that it leaves out."""
    foreign = [part for part in gauge.parts if part.executor != EMULATOR and part.where is None]
    line = gauge_line(
        canonical,
        start=gauge.seeds[0],
        count=len(gauge.seeds),
        executor=foreign[0].executor if foreign else EMULATOR,
        builds=[part.build for part in foreign if part.kind is Kind.go],
        wrong_builds=[part.build for part in foreign if part.kind is Kind.no_go],
        gates=gates,
    )
    return GaugeCommand(line, left_out_of_line(canonical))


def _open(
    session: Session,
    job: JobRow,
    gauge: GaugeRow,
    here: GaugeReport,
    rows: Sequence[Row],
    *,
    now: datetime,
) -> None:
    """Open or renew the flag.

    Its evidence says which mutants pass and how often, what would reject them, and the commands
    that repeat it.
    """
    missed = {name: rate for name, rate in here.misses.parts.items() if rate.count}
    able = sum(1 for rate in here.misses.parts.values() if rate.of)
    # Of equals, the first one.
    worst = max(missed, key=lambda name: missed[name].count / missed[name].of)
    part = next(part for part in gauge.parts if part.name == worst and part.where is None)
    seed = next(
        row["seed"]
        for row in rows
        if row["part"] == worst and row["where"] is None and row.get("able")
    )
    canonical = here.test
    evidence = GaugeEvidence(
        sentence=f"{len(missed)} of {able} known-wrong kernels that can show pass this test.",
        gauge=gauge.id,
        misses={name: _miss(rate, here.sentences.get(name)) for name, rate in missed.items()},
        on_every_seed=here.blind,
        known_wrong=able,
        seeds=gauge.seeds,
        devices=sorted({row["device"] for row in rows if row["device"]}),
        tolerance=dict(canonical.get("tolerance", {})),
        advice=here.advice,
        beyond=here.beyond,
        command=here.command.line,
        command_leaves_out=here.command.leaves_out,
        check=check_line(
            canonical,
            build=part.build,
            executor=part.executor,
            seed=seed,
            output=TestSpec.parse(canonical, max_elements=_ANY_SIZE).outputs[0],
        ),
    )
    finding = FlagRow.finding(
        FlagKind.blunt_test, job, asdict(evidence), build=part.build, branch=gauge.branch
    )
    flags.upsert(session, finding, now=now)


def _miss(rate: MutantMisses, sentence: str | None) -> MutantMiss:
    return MutantMiss(rate.count, rate.of, rate.rate, rate.low, rate.high, sentence=sentence)


def _resolve(session: Session, gauge: GaugeRow, here: MeasuredTest, *, now: datetime) -> None:
    """Resolve the variant's flag if all mutants that passed before were measured and now fail."""
    query = select(FlagRow).where(
        FlagRow.kind == FlagKind.blunt_test,
        *Variant.of(gauge).at(FlagRow),
        FlagRow.state != FlagState.resolved,
    )
    flag = session.scalars(query.with_for_update()).first()
    failed = {name for name, rate in here.misses.parts.items() if rate.of}
    if flag is None or not set(flag.evidence.get("misses") or ()) <= failed:
        return
    why = (
        f"gauge {gauge.id}: every known-wrong kernel that passed now fails,"
        f" on {len(gauge.seeds)} seeds"
    )
    flags.resolve(
        session, flag.id, version=flag.version, why=why, detail={"gauge": gauge.id}, now=now
    )
