"""Judge a kernel that is a plain NumPy function: it has no name and no test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo import fields
from gonogo.arithmetic import Evaluation, Program
from gonogo.arithmetic.formats import format_named
from gonogo.errors import FieldError, JobError, KernelOutputError
from gonogo.graph import Graph, trace
from gonogo.judging.comparison import Arrays, RunOutputs
from gonogo.judging.judging import SeedJudgement, judged_outputs, summed_up
from gonogo.judging.questions import Question, allcloses, narrow_formats
from gonogo.judgment import Candidate
from gonogo.kernels.kernel import Function
from gonogo.kernels.programs import PROGRAMS
from gonogo.kernels.wormhole import GENERIC, Options
from gonogo.spec import tolerances
from gonogo.spec.tolerances import AnyTolerance
from gonogo.spec.validation import Model

WORMHOLE = "wormhole"
WHOLE = {"int": np.int64, "uint": np.int64, "long": np.int64, "short": np.int64, "bool": np.bool_}
"""Beginnings of the names of dtypes without a format, and as what they are traced."""
Formats = Mapping[str, str]


class Tensor(Protocol):
    """A tensor that was read: its values, the name of its type, and its format if it has one."""

    @property
    def values(self) -> NDArray[Any]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def format(self) -> str | None: ...


class _Declared(Model):
    """A tolerance alone, as a test has it."""

    tolerance: AnyTolerance


@dataclass(frozen=True)
class FunctionCase(RunOutputs):
    """The outputs of a kernel that is a function."""

    graphs: Sequence[Graph]
    """The reference, then other ways."""
    inputs: Arrays
    """The arrays that the kernel was given."""
    raw: Arrays
    """Inputs before they were rounded, where they are known: tolerances compare with these."""
    formats: Formats
    """The formats of inputs and outputs."""
    programs: Sequence[Program]
    """The declared arithmetic; empty: it is found."""

    @property
    def questions(self) -> list[Question]:
        """The one question about all outputs."""
        tolerances = allcloses(self.outputs, self.tolerance_for)
        graphs = self.graphs[:1] if self.programs else self.graphs
        programs = [Candidate(graphs[0], program) for program in self.programs]
        narrow = narrow_formats(self.formats.values())
        return [Question(graphs, self.inputs, self.formats, narrow, programs, (), tolerances)]

    def judge_alone(self) -> SeedJudgement:
        """Return the judgment of the outputs, without limits."""
        right = quantized = self._exact(self.inputs)
        if self.raw:
            right = self._exact({**self.inputs, **self.raw})
        arrays = self.outputs, right, quantized
        judged = judged_outputs(self.questions, *arrays, self.tolerance_for, self.shape_of)
        return summed_up(judged, self.tolerance_for)

    def _exact(self, inputs: Arrays) -> Arrays:
        return {name: _exact(self.graphs[0], inputs, name) for name in self.outputs}

    def of_expected(self, outputs: Arrays, form: str) -> FunctionCase:
        """Return the case of the values that a test expects, from what tolerances compare with."""
        inputs = {**self.inputs, **self.raw}
        formats = dict.fromkeys((*inputs, *outputs), form)
        values = {
            name: np.asarray(array, np.float64).reshape(self.shape_of(name))
            for name, array in outputs.items()
        }
        return replace(
            self, outputs=values, inputs=inputs, raw={}, formats=formats, programs=(), tolerance={}
        )

    def shape_of(self, output: str) -> tuple[int, ...]:
        """Return an output's shape."""
        return self.graphs[0].outputs[output].shape


def case_of_function(
    reference: Function,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    raw: Arrays,
    *,
    tolerance: Mapping[str, Any],
    ways: Sequence[Function] = (),
    program: str | Program | None = None,
    parameters: Mapping[str, Any] | None = None,
    numerics: Mapping[str, Any] | None = None,
) -> FunctionCase:
    """Return the case of a kernel that is a function.

    Args:
        reference: a NumPy function of inputs and parameters by name that returns a dict of outputs.
        inputs: what the kernel was given.
        outputs: what it gave.
        raw: inputs before they were rounded to their formats; tolerances compare with these.
        tolerance: that of the outputs, or a map from outputs.
        ways: other functions that are equal in exact arithmetic.
        program: the declared arithmetic, by name or as it is; None: it is found.
        parameters: other arguments of the functions.
        numerics: {"input": ..., "output": ...}: a format, or a map from tensors.

    Raises TraceError for what can't be traced, FieldError for a wrong field or format,
    KernelOutputError for an output that the reference doesn't have, or in another shape, and
    JobError where there is no output.
    """
    if not outputs:
        raise JobError("there is no output to judge: give some of the reference's")
    fields.known(numerics or {}, ("input", "output"), "numerics")
    arrays = {name: _traceable(tensor) for name, tensor in inputs.items()}
    arrays |= {name: np.asarray(array) for name, array in raw.items() if name not in arrays}
    graphs = [trace(function, arrays, **(parameters or {})) for function in (reference, *ways)]
    known = graphs[0].outputs
    for name, tensor in outputs.items():
        if name not in known:
            raise KernelOutputError(
                f"the reference has no output {name!r}; it has {', '.join(known)}"
            )
        if tensor.values.shape != known[name].shape:
            shapes = f"{list(tensor.values.shape)}, that of the reference {list(known[name].shape)}"
            raise KernelOutputError(f"output {name!r} has shape {shapes}")
    in_formats, out_formats = (
        _formats(tensors, (numerics or {}).get(kind), kind)
        for tensors, kind in ((inputs, "input"), (outputs, "output"))
    )
    for name in outputs:
        if name not in out_formats:
            limit = "floats, or a format in numerics.output"
            raise FieldError(name, outputs[name].dtype, "has no format", limit=limit)
    declared = _Declared.parse({"tolerance": dict(tolerance)}, "").tolerance
    first = next(iter(arrays.values()), np.zeros(()))
    return FunctionCase(
        title=f"{graphs[0].name or 'the reference'} {list(first.shape)}",
        spec=None,
        outputs={name: np.asarray(tensor.values, np.float64) for name, tensor in outputs.items()},
        tolerance=tolerances.normalize(declared, tuple(known)),
        graphs=graphs,
        inputs=arrays,
        raw=raw,
        formats={**in_formats, **out_formats},
        programs=_programs(graphs[0], reference, program, in_formats, out_formats),
    )


def _traceable(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor's values; whole numbers and truth values as such."""
    dtype = tensor.dtype.rpartition(".")[2].lower()
    kind = next((kind for start, kind in WHOLE.items() if dtype.startswith(start)), None)
    return tensor.values if kind is None else tensor.values.astype(kind)


def _formats(tensors: Mapping[str, Tensor], named: Any, kind: str) -> dict[str, str]:
    """Return the formats of tensors, as far as they have some. Raises FieldError."""
    given = named if isinstance(named, Mapping) else dict.fromkeys(tensors, named)
    fields.known(given, tuple(tensors), f"numerics.{kind}")
    formats = {}
    for name, tensor in tensors.items():
        form = given.get(name) or ("fp32" if tensor.format == "fp64" else tensor.format)
        if form is not None:
            try:
                format_named(form)
            except (ValueError, AttributeError) as problem:
                raise FieldError(f"numerics.{kind}.{name}", form, str(problem)) from None
            formats[name] = str(form)
    return formats


def _programs(
    graph: Graph,
    reference: Function,
    program: str | Program | None,
    inputs: Formats,
    outputs: Formats,
) -> list[Program]:
    """Return the declared program; [] where none is. Raises FieldError for an unknown name."""
    if program is None:
        return []
    if isinstance(program, Program):
        return [program]
    output = next(iter(outputs.values()))
    if program == WORMHOLE:
        return [GENERIC.program(graph, Options(inputs, output))]
    known = PROGRAMS
    fields.choice(program, (*known, WORMHOLE), "program", "is not a program of a function")
    return [known[program](graph, next(iter(inputs.values()), output))]


def _exact(graph: Graph, inputs: Arrays, output: str) -> NDArray[np.float64]:
    values = Evaluation(graph, inputs).run(output).output(output)
    return np.asarray(values, np.float64)
