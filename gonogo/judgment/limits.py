"""Detection limits: the faults, and the sizes of factors, that would not be seen in an output.

They depend on the inputs and on the program, not on the output.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gonogo.arithmetic import Inputs, Replay
from gonogo.arithmetic.formats import Doubles, round_to
from gonogo.arithmetic.program import NOTHING_STORED, Program
from gonogo.faults.changes import Fault
from gonogo.faults.table import STORED, faults
from gonogo.graph import Graph
from gonogo.judgment.cells import Cells
from gonogo.judgment.sample import Sample, some_groups

SAME = 2.0**-36
"""An effect of less, relative to the value, is float64's roundoff; fp32 rounds by 2**-24."""
SAMPLED = 2**13
"""Elements of a kernel's widest value in the groups that are looked at."""
SIZES = 2.0 ** np.arange(-22, 1)
"""Sizes of factors that are tried, from what rounding may give all groups to a factor of 2."""
SHOWN = 3
"""Faults that the sentence names."""


@dataclass(frozen=True)
class Limits:
    """The faults that would not be seen in an output.

    Attributes:
        output: the output's name.
        unseen: the faults that leave each value within reach of rounding, by id: their sentences.
        factors: by the id of a fault with a fitted size, the least size that would be seen; inf if
            none of those tried would.
        tried: how many faults were tried.
    """

    output: str
    unseen: Mapping[str, str]
    factors: Mapping[str, float]
    tried: int

    @property
    def message(self) -> str:
        """A sentence about the faults that would not be seen."""
        examples = ", ".join(list(self.unseen.values())[:SHOWN])
        sentence = f"{len(self.unseen)} of {self.tried} faults would not be seen"
        sentence += f", such as: {examples}" if examples else ""
        return f"{sentence}; nor would a common factor below {1 + self.factor:.4g}."

    @property
    def factor(self) -> float:
        """The least size of a factor of the output itself that would be seen, at most 1.

        A factor of another value may be larger and stay unseen, where the output hardly depends on
        it: then it moves the output by less than this.
        """
        return min(self.factors.get(f"factor:{self.output}", 0.0), float(SIZES[-1]))

    @property
    def has_fault(self) -> bool:
        """Whether a fault would not be seen that is no other rounding."""
        return any(fault.partition(":")[0] not in STORED for fault in self.unseen)

    @property
    def phrases(self) -> list[str]:
        """The faults that would not be seen, and the factors, a phrase each."""
        factor = f"a common factor below {100 * self.factor:.2g} %"
        return [*self.unseen.values(), *([factor] if self.factor else [])]


def detection_limits(
    graph: Graph, inputs: Inputs, output: str, form: str, program: Program = NOTHING_STORED
) -> Limits:
    """Return which faults, and factors of which size, would not be seen in an output.

    Some groups are looked at: a fault is seen if it moves one of their values out of its cell by
    more than rounding may.

    Args:
        graph: the kernel.
        inputs: its tensors by name.
        output: the output's name.
        form: the format of its values.
        program: how the kernel computes.
    """
    sample = Sample(graph, inputs, output, *some_groups(graph, output, SAMPLED), program=program)
    replay = Replay(sample.part, sample.inputs, program).run(output)
    cells = Cells(round_to(replay.values, form), replay, form, program.flush)

    def is_seen(effect: Doubles) -> bool:
        """Return whether a right kernel's values leave their cells by more than rounding may."""
        with np.errstate(all="ignore"):
            wrong = replace(cells, values=round_to(replay.values + effect, form))
        return bool(wrong.outside.any())

    def least_seen(fault: Fault) -> float:
        """Return the least size that is seen: then larger ones are, too."""
        at = bisect_left(SIZES, 1, key=lambda size: is_seen(sample.effect(fault.sized(size))))
        return float(SIZES[at]) if at < len(SIZES) else np.inf

    unseen: dict[str, str] = {}
    factors: dict[str, float] = {}
    tried = 0
    for fault in faults(graph, output):
        effect = sample.effect(fault)
        if not (np.abs(effect) > SAME * np.abs(replay.values)).any():
            continue  # it computes the same: no fault on these inputs
        tried += 1
        if fault.is_fitted:
            factors[fault.id] = least_seen(fault)
        elif not is_seen(effect):
            unseen[fault.id] = fault.label
    return Limits(output, unseen, factors, tried)
