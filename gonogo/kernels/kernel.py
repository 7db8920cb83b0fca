"""A kernel: its reference, the shapes of its tensors, and other ways to compute the same.

No NumPy: pages, forms and `--help` import this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from gonogo import fields

if TYPE_CHECKING:
    from gonogo.kernels.programs import ProgramOf
    from gonogo.kernels.wormhole import Dataflow

Shape = tuple[int, ...]
Parameters = Mapping[str, Any]
Array = Any
"""An array of NumPy's, or a symbol that stands for one while a function is traced."""
Outputs = Mapping[str, Array]
Function = Callable[..., Outputs]
"""A NumPy function of a kernel's inputs and parameters that returns its outputs by name."""
ShapesOf = Callable[[Shape, Parameters], Mapping[str, Shape]]
"""A function of the first input's shape and all parameters. Raises FieldError for "shape", or for
"parameters.NAME", where the kernel can't have them."""

BoundOf = Callable[[Shape, Parameters], int]


def of_rows(shape: Shape, parameters: Parameters) -> Mapping[str, Shape]:
    """Return the shapes of a kernel of rows: the last axis is a row, the others count rows.

    The kernel's functions get x as (rows, N), and mean and rstd as (rows, 1).
    """
    return {
        **dict.fromkeys(("x", "dy", "y", "dx"), shape),
        **dict.fromkeys(("mean", "rstd"), shape[:-1]),
    }


@dataclass(frozen=True)
class Parameter:
    """A field of a test's `parameters`: its parser, which may raise FieldError, and its default."""

    parse: Callable[[object, str], Any]
    default: Any
    sentence: str


SPOILED = ("power-of-two-outliers", "nan-tile")
"""The emulated builds of any kernel that spoil its first output."""
PUBLIC_BUGS: Mapping[str, tuple[str, ...]] = {
    "attention_biased": ("tt-metal-42891", "tt-metal-54833"),
    "groupnorm_fw": ("tt-metal-50682", "tt-metal-52685"),
    "layernorm_bw": ("attorch-18", "tt-metal-34625", "tt-metal-53204"),
    "layernorm_fw": ("apex-411", "triton-9838", "tt-metal-28365", "tt-metal-49902"),
    "matmul": ("tt-metal-38306",),
    "rmsnorm_bw": ("attorch-17", "tt-metal-28803"),
    "rmsnorm_fw": ("llama.cpp-26708", "tt-metal-49600"),
    "softmax": ("tt-metal-52045",),
    "softmax_bw": ("tt-metal-53208",),
}
"""Emulated builds after public reports, by kernel (gonogo.emulator.public_bugs)."""


def sentence_of(id: str, mistake: Function) -> str:
    """Return a mistake's sentence: the first line of its docstring, or a bound function's."""
    functions = (*getattr(mistake, "args", ()), getattr(mistake, "func", mistake))
    written = [one.__doc__ for one in functions if callable(one) and one.__doc__]
    return written[0].partition("\n")[0].rstrip(".") if written else id


def _generic() -> Dataflow:
    from gonogo.kernels.wormhole import GENERIC

    return GENERIC


def _programs() -> Mapping[str, ProgramOf]:
    from gonogo.kernels.programs import PROGRAMS

    return PROGRAMS


@dataclass(frozen=True, eq=False)
class Kernel:
    """An operation under test, as one file describes it.

    Attributes:
        name: its name in tests.
        reference: the function whose result is right. Its docstring states the formula. Its
            arguments are the inputs, `epsilon` if it has one, and the parameters.
        outputs: the names of what it returns.
        shapes: the shape of each input and output. One that is left out has the last axis.
        ways: functions of the same arguments that are equal in exact arithmetic, the most usual
            first: what an implementation may compute in its place.
        parameters: the fields of a test's `parameters`.
        regimes: the distributions of inputs by name, as tests have them, where uniform values from
            -1 to 1 make no sense.
        whole: inputs of whole numbers: a function of the shape and all parameters that returns
            their bound; they are drawn from 0 to the bound less one.
        example: a usual shape of its first input.
        mistakes: wrong functions of the same arguments, for faults that the general table lacks, by
            the fault's id. The docstring is the sentence about it.
        without_statistics: the kernel that computes the statistics itself which this one is given:
            that of a test whose `numerics.statistics` are `own`.
        downstream: outputs that follow one of its own and have the shape of x. Only a build that
            names one produces it; it is compared with that of a reference build, and isn't judged.
        per_row: tensors with one value per row.
        groups: the number of rows, from a shape and all parameters, where a row isn't the last
            axis.
        block_formats: whether tensors may share exponents in 16 values along a row. On the device
            they do so only where a row is the last axis.
        wormhole: how a Wormhole computes it.
        programs: those of known implementations by name, which a build may declare. They are the
            reference's: each is a function of its graph and the format of its tensors.
        builds: names of its emulated builds, `correct` first; empty: right, its mistakes, and dead
            processes. Besides, each fault of gonogo.faults.table is a build, see faults_of.
        unchanged_by: the builds whose fault lies in another kernel with the same list.
    """

    name: str
    reference: Function
    outputs: tuple[str, ...]
    shapes: ShapesOf = of_rows
    ways: tuple[Function, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    regimes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    whole: Mapping[str, BoundOf] = field(default_factory=dict)
    example: Shape = (64, 1024)
    mistakes: Mapping[str, Function] = field(default_factory=dict)
    without_statistics: Kernel | None = None
    downstream: tuple[str, ...] = ()
    per_row: tuple[str, ...] = ("mean", "rstd")
    groups: Callable[[Shape, Parameters], int] | None = None
    block_formats: bool = True
    wormhole: Dataflow = field(default_factory=_generic)
    programs: Mapping[str, ProgramOf] = field(default_factory=_programs)
    builds: tuple[str, ...] = ()
    unchanged_by: tuple[str, ...] = ()

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Its input tensors in the order of its signature."""
        arguments = inspect.signature(self.reference).parameters.values()
        others = ("epsilon", *self.parameters)
        return tuple(
            argument.name
            for argument in arguments
            if argument.kind != argument.KEYWORD_ONLY and argument.name not in others
        )

    @property
    def drawn(self) -> tuple[str, ...]:
        """The inputs that are drawn at random; the others are statistics of the first."""
        return (self.without_statistics or self).inputs

    @property
    def drawn_floats(self) -> tuple[str, ...]:
        """The drawn inputs that aren't whole numbers."""
        return tuple(name for name in self.drawn if name not in self.whole)

    @property
    def listed_builds(self) -> tuple[str, ...]:
        """Its builds, or what every kernel has."""
        return self.builds or ("correct", *self.mistakes, *SPOILED, "hang", "crash")

    @property
    def emulated_builds(self) -> tuple[str, ...]:
        """The emulated builds that belong to it, `correct` first."""
        return tuple(name for name in self.listed_builds if name not in self.unchanged_by)

    @property
    def public_bugs(self) -> tuple[str, ...]:
        """The emulated builds after public reports, which only some shapes show."""
        return PUBLIC_BUGS.get(self.name, ())

    def with_statistics(self, statistics: str) -> Kernel:
        """Return the kernel of a test's `numerics.statistics`: "given" or "own"."""
        return (self.without_statistics or self) if statistics == "own" else self

    def parse_parameters(self, data: object, path: str) -> dict[str, Any]:
        """Return the canonical form of a test's `parameters`, without defaults.

        Raises FieldError.
        """
        given = fields.mapping({} if data is None else data, path)
        fields.known(given, tuple(self.parameters), path)
        read = {
            name: parameter.parse(given[name], fields.join(path, name))
            for name, parameter in self.parameters.items()
            if name in given
        }
        return {
            name: value for name, value in read.items() if value != self.parameters[name].default
        }

    def completed(self, parameters: Parameters) -> dict[str, Any]:
        """Return all parameters: those of a canonical form, and defaults."""
        return {name: known.default for name, known in self.parameters.items()} | dict(parameters)

    def shape_of(self, tensor: str, shape: Shape, parameters: Parameters) -> Shape:
        """Return the shape of a tensor as executors see it. Raises FieldError."""
        shapes = self.shapes(shape, self.completed(parameters))
        return shape if tensor in self.downstream else shapes.get(tensor, shape[-1:])

    def flat_shape_of(self, tensor: str, shape: Shape, parameters: Parameters) -> Shape:
        """Return a tensor's shape in the domain: (rows, N), or (size,) of one that has no rows."""
        full = self.shape_of(tensor, shape, parameters)
        if not self.has_rows(tensor):
            return (prod(full),)
        if self.groups is None:
            return (prod(full[:-1]), full[-1])
        rows = self.groups(shape, self.completed(parameters))
        return (rows, prod(full) // rows)

    def reference_shape_of(self, tensor: str, shape: Shape, parameters: Parameters) -> Shape:
        """Return the shape of a tensor as the functions take it: see of_rows."""
        if self.shapes is not of_rows:
            return self.shape_of(tensor, shape, parameters)
        flat = self.flat_shape_of(tensor, shape, parameters)
        return (*flat, 1) if tensor in self.per_row else flat

    def has_rows(self, tensor: str) -> bool:
        """Return whether a tensor is the first input, or has two axes, in the usual shape."""
        if tensor in self.per_row:
            return False
        return tensor == self.inputs[0] or len(self.shape_of(tensor, self.example, {})) > 1
