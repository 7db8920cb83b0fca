"""Keeps the device busy: while the child runs seed k, threads make inputs k+1 and judge k-1.

One loop waits for the next event: an answer of the child, its end, inputs ready, a seed judged, a
deadline, a stop. The next seed's request is in the child's socket before the child has finished the
current one, so it never waits for us between two seeds.
"""

from __future__ import annotations

import logging
import math
import os
import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import InfrastructureError, KernelOutputError, in_words
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.replayed import undecided
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict
from gonogo_workers.attempts.context import DeviceContext
from gonogo_workers.attempts.evidence import Artifact, EvidenceChooser, Rank, Shown
from gonogo_workers.executors.base import (
    ExecutorFailure,
    FloatArray,
    KernelCrash,
    KernelError,
    KernelHang,
    Stopped,
    duration_of,
    output_shapes,
    shaped_inputs,
)
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Shapes, Slot
from gonogo_workers.executors.threads import Threads
from gonogo_workers.messages import rows
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import Place, Row

log = logging.getLogger(__name__)

SLOTS = 3
"""One seed that runs, one waiting in the child's socket, one being read or written."""
AHEAD = 2
"""Requests that the child may have received and not answered."""
LARGE_ELEMENTS = 2**20
MAX_JUDGING = {True: 2, False: 16}
"""Seeds with outputs in memory, for large and for small tests.

The device waits rather than fill the host's memory.
"""
HAND_BACK_GRACE_S = 0.7

Arrays = dict[str, NDArray[Any]]
Compare = Callable[[SeedJudgement, int, Arrays, Arrays, Arrays], SeedJudgement]


class JudgedRow(NamedTuple):
    """A row, the arrays for its error maps, and how bad it is; None: it passes."""

    row: Row
    shown: Sequence[Shown] = ()
    rank: Rank | None = None


@dataclass(frozen=True)
class Failure:
    """A seed without numbers, and the end of its child's log."""

    work: Work
    place: Place
    message: str
    verdict: Verdict = Verdict.error
    log_tail: str = ""
    duration_ms: float | None = None


class ChildLost(Exception):
    """The child crashed or was killed for hanging; the remaining seeds need a fresh one.

    `hang`: a seed without an answer, whose row `Pipeline.fail_hung` adds later.
    """

    def __init__(self, message: str, hang: Failure | None = None) -> None:
        super().__init__(message)
        self.hang = hang


@dataclass
class PendingSeed:
    """A seed under way: its slot, and its inputs once they are generated."""

    work: Work
    slot: Slot
    home: deque[Slot]
    """The free slots of its child, to which its slot returns (never those of a later child)."""
    inputs: Future[tuple[Arrays, Arrays]]
    deadline: float = math.inf
    limit_s: float = math.inf
    """The seconds from the start of the seed to its deadline."""


@dataclass
class _Judging:
    """A seed that a thread is judging."""

    work: Work
    place: Place
    duration_ms: float | None
    future: Future[JudgedRow | None] = field(compare=False)


class Pipeline:
    """The seeds of one attempt. All methods but `stop` belong to the attempt's thread."""

    stage = "running"

    def __init__(
        self, chunk: Chunk, resolved: ResolvedBuild, context: DeviceContext, batches: Batches
    ) -> None:
        self._chunk, self.resolved, self._context = chunk, resolved, context
        self._batches, self._evidence = batches, EvidenceChooser(chunk)
        self.build, self.before = chunk.build, chunk.before
        self._subject = f"build {chunk.build} "
        self._todo: deque[Work] = deque(chunk.work)
        self._preparing: deque[PendingSeed] = deque()
        self._running: deque[PendingSeed] = deque()
        self._judging: list[_Judging] = []
        self._first_evidence: Future[list[Artifact]] | None = None
        self._free: deque[Slot] = deque()
        self._slots = 0
        self.answered = 0
        """The number of seeds that the current child has answered, with or without numbers."""
        self.compare: Compare | None = None
        """Compares a judged seed with the reference build's result; None without a reference."""
        self._host_run = ""
        self._position = 0
        self._warm = False
        """Whether this child has answered: its first call may have compiled the kernel."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stop_at: float | None = None
        self._driving = False
        self._max_judging = MAX_JUDGING[True]
        self._input_shapes: Shapes = {}
        self._output_shapes: Shapes = {}
        if isinstance(test := chunk.test, TestSpec):
            self._test, self._canonical = test, test.canonical()
            self._input_shapes = {name: test.shape_of(name) for name in test.input_names}
            self._output_shapes = output_shapes(test, resolved.produced)
            self._max_judging = MAX_JUDGING[test.elements >= LARGE_ELEMENTS]

    def __del__(self) -> None:
        os.close(self._wake)

    @property
    def has_work(self) -> bool:
        """Return whether there are seeds that no child has answered yet."""
        return bool(self._todo)

    def stop(self, grace_s: float) -> bool:
        """Stop soon, from any thread: when the child has answered its requests, or after `grace_s`.

        Return True when there is nothing worth waiting for.
        """
        at = time.monotonic() + grace_s
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)
        self._woken()
        return not (grace_s and self._driving)

    def begin(self, host: KernelHost) -> None:
        """Begin with a fresh child: nothing has run in it, and it has no slots yet."""
        self._host_run, self._position, self._warm = host.host_run, 0, False
        self._free, self._slots, self.answered = deque(), 0, 0

    def count_position(self) -> None:
        """Count a kernel of the context, which is no seed, as run in this child."""
        self._position += 1

    def withdraw(self, failures: Mapping[int, Failure]) -> None:
        """Answer for these seeds, which have failed before."""
        for work in [work for work in self._todo if work[0] in failures]:
            self._todo.remove(work)
            self.fail(replace(failures[work[0]], work=work))

    def refuse(self, problem: ExecutorFailure) -> None:
        """Answer for all remaining work: the build can't be opened."""
        message = f"{self._subject}can't be run: {problem}"
        while self._todo:
            work = self._todo.popleft()
            self.fail(Failure(work, self._place(), message, log_tail=problem.log_tail))

    def drive(self, host: KernelHost, tend: Callable[[], None]) -> None:
        """Run seeds in this child until none is left.

        Raises Stopped, or ChildLost (`has_work` tells whether seeds are left). `tend` is called now
        and then, for work that can be done while the device is busy.
        """
        poll = select.poll()
        for descriptor in (host.fileno(), host.exit_fileno, self._wake):
            poll.register(descriptor, select.POLLIN)
        self._driving = True
        try:
            while True:
                self._heed_stop()
                self._collect()
                self._batches.flush_if_due()
                if self._stop_at is None:
                    self._prepare(host)
                    self._submit(host)
                if not (self._todo or self._preparing or self._running):
                    return
                ready = {descriptor for descriptor, _ in poll.poll(self._patience_ms())}
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                if ready - {self._wake} or self._overdue():
                    self._answer(host)
                    # The child was faster than this loop: two answers came at once
                    while host.buffered and self._running:
                        self._answer(host)
                    tend()
        except BaseException:
            # what the child has not answered goes back into the work, in order
            left = [item.work for item in (*self._running, *self._preparing)]
            self._todo.extendleft(reversed(left))
            self._running.clear()
            self._preparing.clear()
            raise
        finally:
            self._driving = False

    def finish(self) -> None:
        """Wait for every judgement, then make the artifacts of the worst seeds.

        Raises Stopped after a call of `stop`.
        """
        while self._judging or (self._first_evidence and not self._first_evidence.done()):
            self._heed_stop()
            self._wait(self._patience_ms())
            self._batches.flush_if_due()
        self._add_first_evidence()
        self._batches.flush()
        for artifact in self._evidence.worst():
            self._heed_stop()
            self._batches.add_artifact(artifact)

    def drain(self, seconds: float) -> None:
        """Collect what is judged within this time, after a stop."""
        deadline = time.monotonic() + seconds
        while self._judging and (left := deadline - time.monotonic()) > 0:
            self._wait(left * 1e3)
        if self._first_evidence is not None and self._first_evidence.done():
            self._add_first_evidence()

    def fail_hung(self, hang: Failure, more: str) -> None:
        """Add the row of a hung seed; `more` is what was found out since."""
        self.fail(replace(hang, message=hang.message + more))

    def fail(self, one: Failure) -> None:
        """Add the row of a seed without numbers, and the log of one of the first."""
        for artifact in self._evidence.log_of(one.work, one.log_tail):
            self._batches.add_artifact(artifact)
        self._batches.add(
            rows.failed(one.work, one.place, one.duration_ms, one.verdict, one.message)
        )

    def _wait(self, milliseconds: float) -> None:
        """Wait for a thread or a stop, and add the rows of what has been judged."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if poll.poll(milliseconds):
            os.eventfd_read(self._wake)
        self._collect()

    def _place(self) -> Place:
        return Place(self._context.device.identity, self._host_run, self._position)

    def _heed_stop(self) -> None:
        if self._stop_at is not None and (time.monotonic() >= self._stop_at or not self._running):
            raise Stopped("stopped between seeds")

    def _patience_ms(self) -> float:
        deadline = self._running[0].deadline if self._running else math.inf
        due = min(deadline, self._batches.due or math.inf, self._stop_at or math.inf)
        return max(0.0, min(1000.0, (due - time.monotonic()) * 1e3 + 1.0))

    def _overdue(self) -> bool:
        return bool(self._running) and time.monotonic() >= self._running[0].deadline

    def _prepare(self, host: KernelHost) -> None:
        while (
            self._todo and len(self._judging) < self._max_judging and len(self._preparing) < AHEAD
        ):
            if not self._free:
                if self._slots == SLOTS:
                    return
                shapes = self._input_shapes, self._output_shapes
                self._free.append(Slot(host.folder, str(self._slots), *shapes))
                self._slots += 1
            work, slot = self._todo.popleft(), self._free.popleft()
            call = partial(self._make_inputs, work, slot)
            inputs = self._later(call, self._context.drawing)
            self._preparing.append(PendingSeed(work, slot, self._free, inputs))

    def _later(self, call: Callable[[], Any], threads: Threads | None = None) -> Future[Any]:
        future = (threads or self._context.threads).submit(call)
        future.add_done_callback(self._woken)
        return future

    def _woken(self, _future: object = None) -> None:
        os.eventfd_write(self._wake, 1)

    def _make_inputs(self, work: Work, slot: Slot) -> tuple[Arrays, Arrays]:
        raw = generate(self._test, work[0])
        given: Arrays = dict(quantise(self._test, raw))
        slot.write(shaped_inputs(self._test, given))
        return raw, given

    def _request(self, item: PendingSeed) -> Mapping[str, Any]:
        """Return the request of a seed."""
        return {"test": self._canonical, "seed": item.work[0], **item.slot.request()}

    def _admits(self, _host: KernelHost, _work: Work) -> bool:
        """Return whether this request may be sent to the child now."""
        return True

    def _submit(self, host: KernelHost) -> None:
        while self._preparing and len(self._running) < AHEAD and self._preparing[0].inputs.done():
            if not self._admits(host, self._preparing[0].work):
                return
            item = self._preparing.popleft()
            problem = item.inputs.exception()
            if isinstance(problem, OSError):
                words = f"can't write the inputs of seed {item.work[0]}: {problem}"
                raise InfrastructureError(words) from problem
            if problem is not None:
                item.home.append(item.slot)
                message = f"the inputs can't be made: {in_words(problem)}"
                self.fail(Failure(item.work, self._place(), message))
                continue
            if not self._running:
                self._make_head(item)
            self._running.append(item)
            try:
                host.submit(self._request(item))
            except KernelCrash as crash:
                if len(self._running) > 1:  # the seed before this one ended it
                    self._lose(crash)
                raise ChildLost("the child ended between two seeds") from crash

    def _make_head(self, item: PendingSeed) -> None:
        item.limit_s = self._chunk.limit_s(first=not self._warm)
        item.deadline = time.monotonic() + item.limit_s
        self._context.vitals.seed = item.work[0]

    def _answer(self, host: KernelHost) -> None:
        """Receive the answer to the oldest request, or find out that none will come."""
        if not self._running:  # no request is open: it has ended, or it writes garbage
            raise ChildLost("the child ended between two seeds")
        try:
            answer = host.receive(self._running[0].deadline)
        except KernelError as problem:
            item = self._next()
            item.home.append(item.slot)
            message, tail = str(problem), problem.log_tail
            self.fail(Failure(item.work, self._place(), message, log_tail=tail))
            self._position += 1
            return
        except (KernelHang, KernelCrash) as problem:
            self._lose(problem)
        item, place = self._next(), replace(self._place(), kernel_s=duration_of(answer, "kernel_s"))
        self._position += 1
        self._answered(host, item, place, duration_of(answer))

    def _answered(
        self, _host: KernelHost, item: PendingSeed, place: Place, duration_ms: float | None
    ) -> None:
        """Handle the answer to a seed."""
        judging = partial(self._judge, item, place, duration_ms)
        self._judge_later(item.work, place, duration_ms, judging)

    def _judge_later(
        self,
        work: Work,
        place: Place,
        duration_ms: float | None,
        call: Callable[[], JudgedRow | None],
    ) -> None:
        self._judging.append(_Judging(work, place, duration_ms, self._later(call)))

    def _next(self) -> PendingSeed:
        """Return the item just answered, and start the deadline of the next one."""
        item = self._running.popleft()
        self.answered += 1
        self._warm = True
        if self._running:
            self._make_head(self._running[0])
        return item

    def _lose(self, problem: KernelHang | KernelCrash) -> NoReturn:
        """Handle a child that is lost over the oldest seed.

        That seed gets its row, the others a fresh child.
        """
        if self._stop_at is not None and time.monotonic() >= self._stop_at:
            raise Stopped("the child was stopped") from problem
        item = self._running.popleft()
        self.answered += 1
        has_hung = isinstance(problem, KernelHang)
        message = f"no answer within {item.limit_s:g} s" if has_hung else str(problem)
        verdict = Verdict.hang if has_hung else Verdict.crash
        failure = Failure(item.work, self._place(), message, verdict, problem.log_tail)
        if not has_hung:
            self.fail(failure)
        words = f"seed {item.work[0]}: {message}"
        raise ChildLost(words, failure if has_hung else None) from problem

    def _outputs(self, item: PendingSeed) -> dict[str, FloatArray]:
        """Return the outputs of a seed, whose slot is free after that."""
        try:
            return item.slot.read()
        finally:
            item.home.append(item.slot)
            self._woken()

    def _judge(
        self, item: PendingSeed, place: Place, duration_ms: float | None
    ) -> JudgedRow | None:
        """Judge a seed, in a thread; None: there is nothing to send."""
        test, outputs = self._test, self._outputs(item)
        raw, given = item.inputs.result()
        with np.errstate(all="ignore"):  # NaN and Inf are judged, not warned of
            judgement = judge(
                test,
                raw,
                given,
                outputs,
                arithmetic=self.resolved.arithmetic,
                produced=self.resolved.produced,
                on_wormhole=self.resolved.executor.on_wormhole,
            )
        if reason := self._context.monitor.unreplayed:
            judgement = undecided(test, judgement, reason)
        if self.compare is not None:
            judgement = self.compare(judgement, item.work[0], raw, given, outputs)
        row = rows.judged(item.work, place, duration_ms, judgement)
        rank = None if row["verdict"] == Verdict.pass_ else rows.rank(row)
        return JudgedRow(row, [Shown(test, outputs, given)], rank)

    def _collect(self) -> None:
        """Add the rows of the seeds that have been judged."""
        waiting = []
        for judging in self._judging:
            if not judging.future.done():
                waiting.append(judging)
                continue
            problem = judging.future.exception()
            if problem is not None:
                if not isinstance(problem, KernelError | KernelOutputError):
                    log.error("seed %s can't be judged", judging.work[0], exc_info=problem)
                where, spent = (judging.work, judging.place), judging.duration_ms
                self.fail(Failure(*where, in_words(problem), duration_ms=spent))
            elif (judged := judging.future.result()) is not None:
                self._add(judging.work, judged)
        self._judging = waiting

    def _add(self, work: Work, judged: JudgedRow) -> None:
        self._batches.add(judged.row)
        if judged.shown and self._evidence.wants_first(work):
            shown = judged.shown
            self._first_evidence = self._later(
                lambda: [artifact for arrays in shown for artifact in arrays.maps(work)]
            )
        elif judged.rank is not None:
            self._evidence.consider(work, judged.rank, judged.shown)

    def _add_first_evidence(self) -> None:
        if self._first_evidence is not None:
            for artifact in self._first_evidence.result():
                self._batches.add_artifact(artifact)
            self._first_evidence = None
