"""Questions to the judge, as a test asks them: graphs of its kernel, inputs, and formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gonogo import workloads
from gonogo.graph import Graph
from gonogo.judgment import Candidate, Tolerance
from gonogo.judgment.tolerance import allclose_of

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec
    from gonogo.spec.tolerances import Tolerance as DeclaredTolerance

Arrays = Mapping[str, NDArray[Any]]
ToleranceFor = Callable[[str], "DeclaredTolerance | None"]
"""Returns what a test declares of an output."""
DIGITS = 12
"""Hex digits of a reference's hash."""
NARROW = ("bf16", "fp16")
"""The formats in which a kernel whose tensors have them may store values in between."""


@dataclass(frozen=True)
class Question:
    """The arguments of gonogo.judgment.judge, but for outputs."""

    graphs: Sequence[Graph]
    """The reference, then other ways; of a declared arithmetic its graph alone."""
    inputs: Arrays
    """The kernel's inputs, in the shapes of the reference."""
    formats: Mapping[str, str]
    """The formats of the outputs."""
    narrow: Sequence[str]
    """The 16-bit formats of the tensors."""
    declared: Sequence[Candidate]
    """The declared arithmetics; empty: it is found."""
    known: Sequence[Candidate]
    """Other arithmetics, of graphs of their own."""
    tolerances: Mapping[str, Tolerance]
    """By output, as far as they are allclose's."""

    @property
    def every(self) -> list[Graph]:
        """All graphs, by the number of an answer's way."""
        return [*self.graphs, *(candidate.graph for candidate in self.known)]


def narrow_formats(formats: Iterable[str]) -> list[str]:
    """Return the 16-bit formats among those of a kernel's tensors."""
    return [form for form in dict.fromkeys(formats) if form in NARROW]


def allcloses(names: Iterable[str], tolerance_for: ToleranceFor) -> dict[str, Tolerance]:
    """Return rtol and atol of the outputs that declare them."""
    declared = {name: allclose_of(tolerance_for(name)) for name in names}
    return {name: allclose for name, allclose in declared.items() if allclose is not None}


def questions(
    test: TestSpec, given: Arrays, arithmetic: str | None, *, on_wormhole: bool = False
) -> list[Question]:
    """Return the questions of a test: by the declared arithmetic, then by any for other outputs.

    Where none is declared, the known programs of a Wormhole are among those that are tried, with a
    card's noise if the kernel ran on one. Raises FieldError where the kernel hasn't the declared
    one.
    """
    inputs, form = workloads.shaped(test, given), test.numerics.output
    narrow = narrow_formats([form, *map(test.numerics.format_of, test.float_names)])
    names = workloads.programs_on_wormhole(test) if arithmetic is None else [arithmetic]
    known = [Candidate(*one) for name in names for one in workloads.declared(test, name)]
    if arithmetic is None:  # elsewhere, what they explain to the bit is no other kernel's
        known = [
            replace(one, program=replace(one.program, is_of_card=on_wormhole)) for one in known
        ]
    tolerances = allcloses(test.outputs, test.tolerance_for)
    forms = dict.fromkeys(test.outputs, form)
    whole = Question(workloads.graphs_of(test), inputs, forms, narrow, (), known, tolerances)
    if arithmetic is None:
        return [whole]
    return [replace(whole, graphs=[one.graph for one in known], declared=known, known=()), whole]


def reference_digest(test: TestSpec) -> str:
    """Return the beginning of the hash of a test's reference: results of another don't compare."""
    return workloads.graphs_of(test)[0].digest[:DIGITS]
