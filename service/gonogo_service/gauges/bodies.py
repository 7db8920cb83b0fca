"""The body of a gauge, with the types and limits of its fields."""

from __future__ import annotations

from pydantic import Field

from gonogo.errors import FieldError
from gonogo.spec.builds import EMULATOR
from gonogo_service.jobs.bodies import KernelTest, Priority, QueueDeadline, SeedRange, Target
from gonogo_service.jobs.new_job import BACKGROUND_PRIORITY
from gonogo_service.kit.strict import Name, Strict

MAX_GAUGE_BUILDS = 32
MAX_GAUGE_GATES = 100
GAUGE_SEEDS = 3
"""The default number of seeds.

One seed shows a logic fault. Three seeds distinguish a fault on some seeds from one on all seeds.
"""


class GaugeIn(Strict):
    """A test of a kernel, and the graded variant: its branch, arch and board."""

    test: KernelTest
    branch: Name = Field(EMULATOR, description="Branch that gets the grade and the flag")
    target: Target = Field(
        Target(),
        description=(
            "Arch and board as in a job; the executor is that of `builds` and `wrong_builds`"
        ),
    )
    seeds: SeedRange = SeedRange(start=0, count=GAUGE_SEEDS)
    builds: list[Name] = Field(
        [],
        max_length=MAX_GAUGE_BUILDS,
        description="Right builds of the executor, which must pass",
    )
    wrong_builds: list[Name] = Field(
        [],
        max_length=MAX_GAUGE_BUILDS,
        description="Wrong builds of the executor, which must fail",
    )
    gates: list[Name] = Field(
        [],
        max_length=MAX_GAUGE_GATES,
        description="Public gates to apply to the same runs; empty: all that judge the kernel",
    )
    search: bool = Field(
        True, description="If no tolerance works, try other inputs, with one seed each"
    )
    priority: Priority = BACKGROUND_PRIORITY
    queue_deadline_s: QueueDeadline = 86400

    def _normalize(self) -> None:
        if self.target.executor == EMULATOR and (named := self.builds or self.wrong_builds):
            field = "builds.0" if self.builds else "wrong_builds.0"
            reason = "the emulator's kernels always run"
            limit = "another target.executor, or no builds"
            raise FieldError(field, named[0], reason, limit=limit)
