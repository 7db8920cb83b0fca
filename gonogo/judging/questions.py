"""Questions to the judge, as a test asks them: graphs of its kernel, inputs, and formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gonogo import workloads
from gonogo.graph import Graph
from gonogo.judgment import Candidate, Tolerance
from gonogo.judgment.tolerance import allclose_of

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
DIGITS = 12
"""Hex digits of a reference's hash."""
NARROW = ("bf16", "fp16")
"""The formats in which a kernel whose tensors have them may store values in between."""


@dataclass(frozen=True)
class Question:
    """The arguments of gonogo.judgment.judge, but for outputs.

    Attributes:
        graphs: the reference, then other ways; of a declared arithmetic its graph alone.
        inputs: what the kernel was given, in the shapes of the reference.
        form: the format of the outputs.
        narrow: the 16-bit formats of the tensors.
        declared: the declared arithmetics; empty: it is found.
        known: other arithmetics, of graphs of their own.
        tolerances: by output, as far as they are allclose's.
    """

    graphs: Sequence[Graph]
    inputs: Arrays
    form: str
    narrow: Sequence[str]
    declared: Sequence[Candidate]
    known: Sequence[Candidate]
    tolerances: Mapping[str, Tolerance]

    @property
    def every(self) -> list[Graph]:
        """All graphs, by the number of an answer's way."""
        return [*self.graphs, *(candidate.graph for candidate in self.known)]


def questions(
    test: TestSpec, given: Arrays, arithmetic: str | None, *, on_wormhole: bool = False
) -> list[Question]:
    """Return what a test asks: by the declared arithmetic, then by any, if outputs are left.

    Where none is declared, the known programs of a Wormhole are among those that are tried, with a
    card's noise if the kernel ran on one. Raises FieldError where the kernel hasn't the declared
    one.
    """
    inputs = workloads.shaped(test, given)
    form = test.numerics.output
    formats = [form, *map(test.numerics.format_of, test.float_names)]
    narrow = [form for form in dict.fromkeys(formats) if form in NARROW]
    tolerances = {
        name: allclose
        for name in test.outputs
        if (allclose := allclose_of(test.tolerance_for(name))) is not None
    }
    names = workloads.programs_on_wormhole(test) if arithmetic is None else [arithmetic]
    known = [Candidate(*one) for name in names for one in workloads.declared(test, name)]
    if arithmetic is None:  # elsewhere, what they explain to the bit is no other kernel's
        known = [
            replace(one, program=replace(one.program, is_of_card=on_wormhole)) for one in known
        ]
    graphs = workloads.graphs_of(test)
    without = Question(graphs, inputs, form, narrow, (), known, tolerances)
    if arithmetic is None:
        return [without]
    graphs = [one.graph for one in known]
    return [Question(graphs, inputs, form, narrow, known, (), tolerances), without]


def reference_digest(test: TestSpec) -> str:
    """Return the beginning of the hash of a test's reference: results of another don't compare."""
    return workloads.graphs_of(test)[0].digest[:DIGITS]
