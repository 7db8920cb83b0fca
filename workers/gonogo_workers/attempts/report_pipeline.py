"""The iterations of a selection, one after the other in a child that runs existing tests.

Threads judge the arrays that the tests hand over. The loop, deadlines and the handling of lost
children are those of the pipeline of kernels.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gonogo.settings
from gonogo.errors import JobError, in_words
from gonogo.reports.outcomes import Outcome
from gonogo.spec.selections import AnyTest, Selection
from gonogo_workers.attempts import report_stages
from gonogo_workers.attempts.evidence import Evidence
from gonogo_workers.attempts.gauge_pipeline import GaugePipeline
from gonogo_workers.attempts.heartbeat import Vitals
from gonogo_workers.attempts.lost_child import ChildLost, Hang
from gonogo_workers.attempts.pipeline import AHEAD, Item, Pipeline
from gonogo_workers.attempts.report_evidence import JudgedArrays, ReportEvidence
from gonogo_workers.executors.base import KernelCrash, KernelError, KernelHang, duration_of
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot
from gonogo_workers.executors.threads import Threads
from gonogo_workers.messages import rows
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import Place, Row
from gonogo_workers.reports import dumps
from gonogo_workers.reports import rows as report_rows
from gonogo_workers.reports.dumps import Dump
from gonogo_workers.reports.exchange import read_reports, request
from gonogo_workers.reports.rows import LOST, Report

log = logging.getLogger(__name__)

MAX_WAITING = 2
"""Iterations whose arrays may wait in memory to be judged."""

Finished = tuple[Row, list[JudgedArrays]]


def parts_for(
    chunk: Chunk,
    resolved: ResolvedBuild,
    device: str,
    threads: Threads,
    batches: Batches,
    vitals: Vitals,
) -> tuple[Evidence | ReportEvidence, Pipeline]:
    """Return the evidence and the pipeline of an attempt.

    Their kind depends on the chunk: a kernel, the parts of a gauge, or a selection.
    """
    if isinstance(chunk.test, Selection):
        reported = ReportEvidence(chunk)
        return reported, ReportPipeline(chunk, resolved, device, threads, batches, reported, vitals)
    evidence = Evidence(chunk)
    if chunk.gauge is not None:
        return evidence, GaugePipeline(chunk, resolved, device, threads, batches, evidence, vitals)
    return evidence, Pipeline(chunk, resolved, device, threads, batches, evidence, vitals)


@dataclass
class _Waiting:
    """An iteration whose reports are here, and whose arrays are being judged."""

    work: Work
    place: Place
    duration_ms: float | None
    future: Future[Finished]


@dataclass(frozen=True)
class _Iteration:
    """An iteration as its child reported it."""

    work: Work
    place: Place
    duration_ms: float | None
    reports: Sequence[Report]
    arrays: Mapping[str, Sequence[Dump]]


class ReportPipeline(Pipeline):
    """The iterations of one attempt. All methods but `stop` belong to the attempt's thread."""

    def __init__(
        self,
        chunk: Chunk,
        resolved: ResolvedBuild,
        device: str,
        threads: Threads,
        batches: Batches,
        evidence: ReportEvidence,
        vitals: Vitals,
    ) -> None:
        super().__init__(
            chunk, resolved, device, threads, batches, cast(Evidence, evidence), vitals
        )
        self._report_evidence = evidence
        self._files: dict[Work, Path] = {}
        self._hung: _Iteration | None = None
        self._max_elements = gonogo.settings.load().max_elements

    def _plan(self, test: AnyTest) -> None:
        assert isinstance(test, Selection)
        self._selection = test

    def _prepare(self, host: KernelHost) -> None:
        """Queue iterations: they need no inputs, only a file for their reports."""
        while self._todo and len(self._judging) < MAX_WAITING and len(self._preparing) < AHEAD:
            work = self._todo.popleft()
            self._files[work] = host.folder / f"reports-{work[0]}-{work[1]}.json"
            nothing: Future[Any] = Future()
            nothing.set_result(({}, {}))
            self._preparing.append(Item(work, Slot(host.folder, "", {}, {}), deque(), nothing))

    def _submit(self, host: KernelHost) -> None:
        while self._preparing and len(self._running) < AHEAD:
            item = self._preparing.popleft()
            if not self._running:
                self._make_head(item)
            self._running.append(item)
            try:
                host.submit(
                    request(
                        self._selection,
                        item.work[0],
                        self._files[item.work],
                        self._chunk.limit_s(first=not self._warm),
                    )
                )
            except KernelCrash as crash:
                self._lose_unsent(crash)

    def _answer(self, host: KernelHost) -> None:
        if not self._running:
            raise ChildLost("the child ended between two iterations")
        try:
            answer = host.receive(self._running[0].deadline)
        except KernelError as problem:
            self._fail(self._next().work, None, problem.verdict, str(problem), problem.log_tail)
            self._position += 1
            return
        except (KernelHang, KernelCrash) as problem:
            self._lose(problem)
            return
        work = self._next().work
        place = self._place()
        self._position += 1
        duration = duration_of(answer)
        try:
            reports = read_reports(self._files.pop(work))
        except JobError as problem:
            self._fail(work, duration, "error", str(problem), host.log.tail())
            return
        staged = report_stages.artifact(
            work, reports, self._resolved.suites.get(self._selection.suite or "", {})
        )
        if staged is not None:
            self._batches.add_artifact(staged)
        # The arrays are read now: their files go with the child
        arrays = read_dumps(reports, self._max_elements)
        iteration = _Iteration(work, place, duration, reports, arrays)
        lost = [report for report in reports if report.outcome in LOST]
        if any(report.outcome is Outcome.hang for report in lost):
            self._hung = iteration
            raise ChildLost(
                f"iteration {work[0]}: a test hung", Hang(work, place, "", host.log.tail())
            )
        self._judge_later(iteration)
        if lost:
            for artifact in self._report_evidence.log_of(work, host.log.tail()):
                self._batches.add_artifact(artifact)
            raise ChildLost(f"iteration {work[0]}: {lost[0].outcome} in {lost[0].name}")

    def fail_hung(self, hang: Hang, more: str) -> None:
        """Add the row of a hung iteration, with everything that its other tests reported.

        One without any report is a row without numbers.
        """
        iteration, self._hung = self._hung, None
        if iteration is None:
            super().fail_hung(hang, more)
            return
        for artifact in self._report_evidence.log_of(hang.work, hang.log_tail):
            self._batches.add_artifact(artifact)
        name = next(report.name for report in iteration.reports if report.outcome is Outcome.hang)
        self._judge_later(iteration, more and f"{name} hung{more}")

    def _judge_later(self, iteration: _Iteration, more: str = "") -> None:
        """Have a thread judge the arrays; `more` is what else was found out about the iteration."""

        def judge() -> Finished:
            row, judged = judge_iteration(
                iteration.work,
                iteration.place,
                iteration.duration_ms,
                iteration.reports,
                iteration.arrays,
                self._resolved.arithmetic,
            )
            if more:
                message = "; ".join(filter(None, (row.get("message"), more)))
                row["message"] = message[: rows.MAX_MESSAGE_CHARS]
            return row, judged

        self._judging.append(
            cast(
                Any,
                _Waiting(
                    iteration.work, iteration.place, iteration.duration_ms, self._later(judge)
                ),
            )
        )

    def _collect(self) -> None:
        waiting = []
        for judging in cast(list[_Waiting], self._judging):
            if not judging.future.done():
                waiting.append(judging)
                continue
            problem = judging.future.exception()
            if problem is not None:
                log.error("iteration %s can't be judged", judging.work[0], exc_info=problem)
                self._batches.add(
                    rows.failed(
                        judging.work, judging.place, judging.duration_ms, "error", in_words(problem)
                    )
                )
                continue
            row, judged = judging.future.result()
            self._batches.add(row)
            if judged and self._report_evidence.wants_first(judging.work):
                for artifact in self._report_evidence.of(judging.work, judged):
                    self._batches.add_artifact(artifact)
            else:
                self._report_evidence.consider(judging.work, judged)
        self._judging = cast(Any, waiting)


def read_dumps(reports: Sequence[Report], max_elements: int) -> dict[str, list[Dump]]:
    """Return the arrays of every test that handed some over, by its name."""
    left, number = dumps.MAX_BYTES, 0
    dumps_by_test: dict[str, list[Dump]] = {}
    for report in reports:
        for entry in report.dumps:
            number += 1
            if number > dumps.MAX_DUMPS:
                problem = f"more than {dumps.MAX_DUMPS} arrays of kernels in one iteration"
                dumps_by_test.setdefault(report.name, []).append(
                    Dump(None, {}, {}, None, "", problem)
                )
                break
            dump = dumps.read(entry, max_elements=max_elements, left=left)
            left -= dump.nbytes
            dumps_by_test.setdefault(report.name, []).append(dump)
    return dumps_by_test


def judge_iteration(
    work: Work,
    place: Place,
    duration_ms: float | None,
    reports: Sequence[Report],
    arrays: Mapping[str, Sequence[Dump]],
    arithmetic: str | None,
) -> Finished:
    """Return the row of an iteration, and the arrays that were judged."""
    judged_arrays: list[JudgedArrays] = []
    judged_by_test: dict[str, list[report_rows.Judged]] = {}
    for name, group in arrays.items():
        for dump, label in zip(group, dumps.labels(name, group), strict=True):
            judged_dump = dumps.judged(dump, label, arithmetic)
            judged_by_test.setdefault(name, []).append(judged_dump.judged)
            if judged_dump.judged.judgement is not None and judged_dump.judged.test is not None:
                judged_arrays.append(
                    JudgedArrays(
                        label,
                        judged_dump.judged.test,
                        judged_dump.judged.judgement,
                        judged_dump.given,
                        judged_dump.outputs,
                    )
                )
    return report_rows.iteration_row(
        work, place, duration_ms, reports, judged_by_test
    ), judged_arrays
