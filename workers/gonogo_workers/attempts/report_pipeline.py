"""The iterations of a selection, one after the other in a child that runs existing tests.

Threads judge the arrays that the tests hand over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gonogo.settings
from gonogo.errors import JobError
from gonogo.reports import forms
from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import labels
from gonogo.spec import stages
from gonogo.spec.selections import Selection
from gonogo.spec.verdicts import Verdict
from gonogo_workers.attempts.context import DeviceContext
from gonogo_workers.attempts.evidence import Shown
from gonogo_workers.attempts.gauge_pipeline import GaugePipeline
from gonogo_workers.attempts.pipeline import (
    Arrays,
    ChildLost,
    Failure,
    JudgedRow,
    PendingSeed,
    Pipeline,
)
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot
from gonogo_workers.messages import rows
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import Place
from gonogo_workers.reports import dumps
from gonogo_workers.reports.dumps import Dump
from gonogo_workers.reports.exchange import read_reports, request
from gonogo_workers.reports.rows import LOST, JudgedDump, Report, iteration_row

log = logging.getLogger(__name__)

STAGES = "stages"
"""The kind of a table of stages; gonogo_service.results.stages reads it."""
MAX_SHOWN = 4
"""Tests of one iteration that get error maps."""


def pipeline_of(
    chunk: Chunk, resolved: ResolvedBuild, context: DeviceContext, batches: Batches
) -> Pipeline:
    """Return the pipeline of a chunk: a kernel's, a gauge's parts, or a selection's."""
    kind = ReportPipeline if isinstance(chunk.test, Selection) else Pipeline
    return (GaugePipeline if chunk.gauge is not None else kind)(chunk, resolved, context, batches)


@dataclass(frozen=True)
class Iteration:
    """An iteration as its child reported it."""

    work: Work
    place: Place
    duration_ms: float | None
    reports: Sequence[Report]
    arrays: Mapping[str, Sequence[Dump]]
    """By the name of the test that handed them over."""

    def judged(self, arithmetic: str | None) -> JudgedRow:
        """Return the row, and the arrays of the worst tests (else of the first) to be shown."""
        by_test: dict[str, list[JudgedDump]] = {}
        for name, group in self.arrays.items():
            names = labels(name, [dump.name for dump in group])
            by_test[name] = [
                dumps.judged(dump, label, arithmetic)
                for dump, label in zip(group, names, strict=True)
            ]
        where = self.work, self.place, self.duration_ms
        row = iteration_row(*where, self.reports, by_test)
        ranked = [
            (rows.rank(one.judgement.to_json()), one)
            for group in by_test.values()
            for one in group
            if one.judgement is not None
        ]
        wrong = [entry for entry in ranked if entry[1].is_wrong]
        wrong.sort(key=lambda entry: entry[0], reverse=True)
        chosen = wrong[:MAX_SHOWN] or ranked[:1]
        return JudgedRow(row, [_shown(one) for _, one in chosen], wrong[0][0] if wrong else None)


def _shown(judged: JudgedDump) -> Shown:
    """Return the wrong outputs of a test's arrays, or all where none is."""
    assert judged.test is not None
    assert judged.judgement is not None
    outputs = judged.judgement.outputs
    wrong = {name for name in outputs if outputs[name].verdict is not Verdict.pass_}
    shown = {n: array for n, array in judged.outputs.items() if not wrong or n in wrong}
    return Shown(judged.test, shown, judged.given, judged.label)


class ReportPipeline(Pipeline):
    """The iterations of one attempt: they need no inputs, only a file for their reports."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert isinstance(self._chunk.test, Selection)
        self._selection = self._chunk.test
        self._files: dict[Work, Path] = {}
        self._hung: Iteration | None = None
        self._max_elements = gonogo.settings.load().max_elements

    def _make_inputs(self, work: Work, slot: Slot) -> tuple[Arrays, Arrays]:
        return {}, {}

    def _request(self, item: PendingSeed) -> Mapping[str, Any]:
        seed, repeat = item.work
        file = self._files[item.work] = item.slot.folder / f"reports-{seed}-{repeat}.json"
        return request(self._selection, seed, file, self._chunk.limit_s(first=not self._warm))

    def _answered(
        self, host: KernelHost, item: PendingSeed, place: Place, duration_ms: float | None
    ) -> None:
        item.home.append(item.slot)
        work = item.work
        try:
            reports = read_reports(self._files.pop(work))
        except JobError as problem:
            tail = host.log.tail()
            self.fail(Failure(work, place, str(problem), log_tail=tail, duration_ms=duration_ms))
            return
        self._add_stages(work, reports)
        # The arrays are read now: their files go with the child
        arrays = dumps.read_all(reports, self._max_elements)
        iteration = Iteration(work, place, duration_ms, reports, arrays)
        lost = [report for report in reports if report.outcome in LOST]
        if any(report.outcome is Outcome.hang for report in lost):
            self._hung = iteration
            hang = Failure(work, place, "", Verdict.hang, host.log.tail())
            raise ChildLost(f"iteration {work[0]}: a test hung", hang)
        self._judge_iteration(iteration, host.log.tail() if lost else "")
        if lost:
            raise ChildLost(f"iteration {work[0]}: {lost[0].outcome} in {lost[0].name}")

    def fail_hung(self, hang: Failure, more: str) -> None:
        """Add the row of a hung iteration, with everything that its other tests reported.

        One without any report is a row without numbers.
        """
        iteration, self._hung = self._hung, None
        if iteration is None:
            super().fail_hung(hang, more)
            return
        name = next(report.name for report in iteration.reports if report.outcome is Outcome.hang)
        self._judge_iteration(iteration, hang.log_tail, more and f"{name} hung{more}")

    def _judge_iteration(self, iteration: Iteration, tail: str, more: str = "") -> None:
        """Have a thread judge the arrays; `more` is what else was found out about the iteration."""
        for artifact in self._evidence.log_of(iteration.work, tail):
            self._batches.add_artifact(artifact)

        def judge() -> JudgedRow:
            judged = iteration.judged(self.resolved.arithmetic)
            if more:
                message = "; ".join(filter(None, (judged.row.get("message"), more)))
                judged.row["message"] = message[: rows.MAX_MESSAGE_CHARS]
            return judged

        self._judge_later(iteration.work, iteration.place, iteration.duration_ms, judge)

    def _add_stages(self, work: Work, reports: Sequence[Report]) -> None:
        """Add the table of a staged suite's iteration.

        Storage joins the tables of all iterations and adds blocker and regressions.
        """
        tests = [
            {
                "stage": report.stage,
                "name": report.name,
                "outcome": report.outcome.value,
                "message": report.message,
                "duration_ms": report.duration_ms,
            }
            | {key: report.more[key] for key in ("requires", "blocked_by") if key in report.more}
            for report in reports
        ]
        table = stages.table(tests, self.resolved.suites.get(self._selection.suite or "", {}))
        content = table.to_json()
        if table.stages and not forms.is_plain(content):  # the service would refuse the message
            log.warning("iteration %s: the table of its stages is too large", work[0])
        elif table.stages:
            self._batches.add_artifact(rows.artifact(STAGES, work, content))
