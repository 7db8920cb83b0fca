"""The runs of a gauge's chunk: right and wrong kernels on the same seeds.

Each run is measured to a row of numbers. The loop, deadlines and the handling of lost children are
the pipeline's. What differs: an item is a (seed, part), and a part may get permuted inputs or other
numerics. The emulator's parts share a child, which is opened again for each part: there is no
device to open.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from gonogo.gauge import measure
from gonogo.gauge.kernels import Part
from gonogo.spec.verdicts import Verdict
from gonogo_workers.attempts.lost_child import ChildLost
from gonogo_workers.attempts.pipeline import SLOTS, Arrays, Item, Judged, Pipeline
from gonogo_workers.executors.base import KernelCrash, shaped_inputs
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot
from gonogo_workers.messages import rows
from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place


class GaugePipeline(Pipeline):
    """The (seed, part) pairs of one attempt.

    All methods but `stop` belong to the attempt's thread.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._latest: measure.Drawn | None = None
        """The arrays of the latest seed: its parts come together, so they are drawn once."""
        self._drawn: dict[Work, measure.Drawn] = {}
        """The arrays of the runs that are under way."""
        self._drawing = threading.Lock()

    def begin(self, host: KernelHost) -> Callable[[], Place]:
        """Begin as every pipeline does, then report the parts that the test doesn't have.

        They are `not_run`.
        """
        place = super().begin(host)
        parts = self._chunk.gauge or {}
        not_run = [work for work in self._todo if parts.get(work[1]) is None]
        self._todo = deque(work for work in self._todo if parts.get(work[1]) is not None)
        for work in not_run:
            self._batches.add(
                rows.failed(
                    work, place(), None, Verdict.not_run.value, "no such part for this test"
                )
            )
        return place

    def _part(self, work: Work) -> Part:
        part = (self._chunk.gauge or {})[work[1]]
        assert part is not None  # `begin` has answered for the others
        return part

    def _canonical_test(self, work: Work) -> dict[str, Any]:
        return self._part(work).test.canonical()

    def _admits(self, host: KernelHost, work: Work) -> bool:
        build = self._part(work).build
        if build != host.build:
            if self._running:  # the answer to `open` would come among those of the runs
                return False
            try:
                host.open(build)
            except KernelCrash as crash:
                raise ChildLost("the child ended between two seeds") from crash
        return True

    def _make_inputs(self, work: Work, slot: Slot) -> tuple[Arrays, Arrays]:
        part = self._part(work)
        with self._drawing:
            drawn = self._latest
            if drawn is None or drawn.seed != work[0]:
                self._latest = drawn = measure.Drawn.of(self._test, work[0])
            self._drawn[work] = drawn
            # Failed runs are never judged, so their arrays are removed here
            while len(self._drawn) > self._max_judging + SLOTS:
                del self._drawn[next(iter(self._drawn))]
        given = dict(drawn.as_given_to(part).given)
        slot.write(shaped_inputs(part.test, given))
        return {}, {}

    def _judge(self, item: Item, place: Place, duration: float | None) -> Judged:
        try:
            outputs = item.slot.read()
        finally:
            item.home.append(item.slot)
            os.eventfd_write(self._wake, 1)
        part = self._part(item.work)
        with self._drawing:
            drawn = self._drawn.pop(item.work, None) or measure.Drawn.of(self._test, item.work[0])
        with np.errstate(all="ignore"):  # NaN and Inf are judged, not warned of
            row = measure.measured(
                part,
                drawn,
                outputs,
                arithmetic=self._resolved.arithmetic,
                produced=self._resolved.produced,
            )
        stored = rows.gauged(item.work, place, duration, row)
        return {**stored, "sentence": part.sentence}, {}, {}
