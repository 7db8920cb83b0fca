"""The runs of a gauge's chunk: right and wrong kernels on the same seeds.

Each run is measured to a row of numbers. What differs from other pipelines: an item is a (seed,
part), and a part may get permuted inputs or other numerics. The emulator's parts share a child,
which is opened again for each part: there is no device to open.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from gonogo.gauge import measure
from gonogo.gauge.kernels import Part
from gonogo.spec.verdicts import Verdict
from gonogo_workers.attempts.pipeline import (
    SLOTS,
    Arrays,
    ChildLost,
    Failure,
    JudgedRow,
    PendingSeed,
    Pipeline,
)
from gonogo_workers.executors.base import KernelCrash, shaped_inputs
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot
from gonogo_workers.messages import rows
from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place


class GaugePipeline(Pipeline):
    """The (seed, part) pairs of one attempt."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._parts = self._chunk.gauge or {}
        self._latest: measure.Drawn | None = None
        """The arrays of the latest seed: its parts come together, so they are drawn once."""
        self._drawn: dict[Work, measure.Drawn] = {}
        """The arrays of the runs that are under way."""
        self._drawing = threading.Lock()

    def begin(self, host: KernelHost) -> None:
        """Begin as every pipeline does; the parts that the test doesn't have are `not_run`."""
        super().begin(host)
        known = {number for number, part in self._parts.items() if part is not None}
        missing = [work for work in self._todo if work[1] not in known]
        self._todo = deque(work for work in self._todo if work[1] in known)
        for work in missing:
            message = "no such part for this test"
            self.fail(Failure(work, self._place(), message, Verdict.not_run))

    def _part(self, work: Work) -> Part:
        part = self._parts[work[1]]
        assert part is not None  # `begin` has answered for the others
        return part

    def _request(self, item: PendingSeed) -> Mapping[str, Any]:
        return {**super()._request(item), "test": self._part(item.work).test.canonical()}

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
        slot.write(shaped_inputs(part.test, dict(drawn.as_given_to(part).given)))
        return {}, {}

    def _judge(self, item: PendingSeed, place: Place, duration_ms: float | None) -> JudgedRow:
        outputs, part = self._outputs(item), self._part(item.work)
        with self._drawing:
            drawn = self._drawn.pop(item.work, None) or measure.Drawn.of(self._test, item.work[0])
        with np.errstate(all="ignore"):  # NaN and Inf are judged, not warned of
            row = measure.measured(
                part,
                drawn,
                outputs,
                arithmetic=self.resolved.arithmetic,
                produced=self.resolved.produced,
            )
        stored = rows.gauged(item.work, place, duration_ms, row)
        return JudgedRow({**stored, "sentence": part.sentence})
