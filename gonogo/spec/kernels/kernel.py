"""A kernel as a test spec sees it: tensors, shapes, parameters, emulated builds.

No NumPy: the API imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from gonogo.spec import fields

Shape = tuple[int, ...]
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Extent:
    """A test's shape as its kernel sees it: a matrix whose rows are reduced one at a time."""

    rows: int
    features: int
    """Elements of a row."""
    per_row: Shape
    """The shape of a tensor with one value per row (mean, rstd)."""
    vector: Shape
    """The shape of the others (gamma, beta, dgamma)."""


def last_axis(shape: Shape, parameters: Parameters, path: str) -> Extent:
    """Return the matrix of a kernel that reduces the last dimension; the others count rows."""
    return Extent(prod(shape[:-1]), shape[-1], shape[:-1], shape[-1:])


@dataclass(frozen=True)
class Parameter:
    """A field of a test's `parameters`: its parser, which may raise FieldError, and its default."""

    parse: Callable[[object, str], Any]
    default: Any
    sentence: str


@dataclass(frozen=True)
class Kernel:
    """An operation under test.

    Attributes:
        name: its name in a test.
        outputs: the tensors that it produces; the others are statistics of the first.
        drawn: the tensors that are drawn at random for it.
        reference: "module:NAME" of an installed package's gonogo.references.kernel.Kernel, which is
            imported when something is judged; "" for one of gonogo.references.
        builds: names of the emulated builds of its kind, `correct` first.
        unchanged_by: the mutants among `builds` whose fault lies in another kernel of the kind.
        given: its inputs where a test says `statistics: given`; None: it always computes its own
            statistics.
        parameters: fields of the spec's `parameters`, besides epsilon.
        extent: from (shape, parameters, path) to the matrix that it works on. Raises FieldError for
            a shape that it can't have.
        downstream: outputs that follow one of its own and have the test's shape. Only a build that
            names one produces it; it is compared with that of a reference build, and isn't judged.
        matrices: tensors of the test's own shape.
        per_row: tensors with one value per row. All others are vectors.
    """

    name: str
    outputs: tuple[str, ...]
    drawn: tuple[str, ...]
    reference: str = ""
    builds: tuple[str, ...] = ("correct",)
    unchanged_by: tuple[str, ...] = ()
    given: tuple[str, ...] | None = None
    parameters: Mapping[str, Parameter] | None = None
    extent: Callable[[Shape, Parameters, str], Extent] = last_axis
    block_formats: bool = True
    """True if tensors may share exponents in 16 values along a row. On the device they do so
    only where a row is the last dimension."""
    downstream: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ("x", "dy", "y", "dx")
    per_row: tuple[str, ...] = ("mean", "rstd")

    @property
    def given_statistics(self) -> bool:
        """Return whether mean and rstd can be its inputs."""
        return self.given is not None

    @property
    def emulated_builds(self) -> tuple[str, ...]:
        """Return the emulated builds that belong to it, `correct` first."""
        return tuple(name for name in self.builds if name not in self.unchanged_by)

    def inputs(self, statistics: str) -> tuple[str, ...]:
        """Return its input tensors in the order of its signature.

        statistics: "given" or "own".
        """
        return self.drawn if self.given is None or statistics == "own" else self.given

    def parse_parameters(self, data: object, path: str) -> dict[str, Any]:
        """Return the canonical form of a test's `parameters`, without defaults.

        Raises FieldError.
        """
        known = self.parameters or {}
        given = fields.mapping({} if data is None else data, path)
        fields.known(given, tuple(known), path)
        read = {
            name: parameter.parse(given[name], fields.join(path, name))
            for name, parameter in known.items()
            if name in given
        }
        return {name: value for name, value in read.items() if value != known[name].default}

    def parameter(self, parameters: Parameters, name: str) -> Any:
        """Return the value of a parameter in a canonical form."""
        return parameters[name] if name in parameters else (self.parameters or {})[name].default

    def drawn_rows(self) -> tuple[str, ...]:
        """Return the drawn tensors with a value for every element; the others are one row."""
        return tuple(name for name in self.drawn if name in self.matrices)

    def is_matrix(self, tensor: str) -> bool:
        """Return whether a tensor has a value for every element of x."""
        return tensor in self.matrices or tensor in self.downstream

    def shape_of(self, tensor: str, shape: Shape, extent: Extent) -> Shape:
        """Return the shape of a tensor as executors see it."""
        if self.is_matrix(tensor):
            return shape
        return extent.per_row if tensor in self.per_row else extent.vector

    def flat_shape_of(self, tensor: str, extent: Extent) -> Shape:
        """Return a tensor's shape in the domain: (rows, features), (rows,) or a flat vector's."""
        if self.is_matrix(tensor):
            return (extent.rows, extent.features)
        return (extent.rows,) if tensor in self.per_row else (prod(extent.vector),)
