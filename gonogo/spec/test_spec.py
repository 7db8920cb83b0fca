"""The test spec: kernel, shape, numerics, inputs and tolerance, validated once.

Its keys never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_serializer
from pydantic_core import PydanticCustomError

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Kernel
from gonogo.kernels.registry import KERNELS, nameable
from gonogo.spec import regimes, tolerances
from gonogo.spec.canonical import key_of
from gonogo.spec.numerics import Numerics
from gonogo.spec.regimes import Inputs, Regime
from gonogo.spec.tolerances import AnyTolerance, Tolerance
from gonogo.spec.validation import OBJECT, VALUE, WHOLE, Model, ObjectOrValue, Refused, bounded

MAX_ELEMENTS = 64 * 2**20
MAX_RANK = 8
MAX_GRID = 64
"""Rows or columns of a grid of cores. No chip has that many."""


def _known_kernel(name: str) -> str:
    try:
        known = name in KERNELS
    except FieldError as problem:  # its package is installed, and can't be loaded
        raise Refused(problem.at("")) from None
    if not known:
        names = nameable()
        allowed = {"limit": "one of " + ", ".join(names)}
        raise PydanticCustomError(
            "kernel", "unknown value" + fields.did_you_mean(name, names), allowed
        )
    return name


def _list_kernels(schema: dict[str, Any]) -> None:
    schema["enum"] = list(KERNELS)


def _or_null(schema: dict[str, Any]) -> None:
    """Document that null stands for the default; {} is every member of a union."""
    about = ("title", "description", "default", "examples")
    given = {name: schema.pop(name) for name in list(schema) if name not in about}
    schema["anyOf"] = [*given.get("oneOf", [given]), {"type": "null"}]


Size = Annotated[int, Field(ge=1), WHOLE]
Cores = Annotated[int, Field(ge=1, le=MAX_GRID), WHOLE]


class Sharded(Model):
    """Tensors are spread over a grid of cores."""

    sharded: Annotated[tuple[Cores, Cores], Field(strict=False)] = Field(
        description="The grid: [rows, columns]", json_schema_extra={"x-unit": "numbers"}
    )


def _check_names(value: object, info: ValidationInfo) -> object:
    """Read null as {}, and check names that depend on the kernel before their values."""
    kernel = KERNELS.get(info.data.get("kernel", ""))
    given = bounded(value)
    if kernel is not None and isinstance(given, Mapping):
        try:
            if info.field_name == "inputs":
                fields.known(given, (*Regime.model_fields, *kernel.drawn_floats), "")
            elif info.field_name == "tolerance":
                tolerances.check_names(given, kernel.outputs)
        except FieldError as problem:
            raise Refused(problem) from None
    return {} if value is None else value


NAMES_OF_KERNEL = field_validator("parameters", "numerics", "inputs", "tolerance", mode="before")(
    staticmethod(_check_names)
)
"""The validator of fields whose members depend on the kernel; parts of a test have it, too."""


class TestSpec(Model):
    """A test of a kernel; its canonical form and its keys don't depend on how it was written.

    Its `workload` is the spec without the tolerance. Specs are equal exactly when their keys are.
    """

    __test__ = False  # pytest: not a test case

    kernel: Annotated[
        str, AfterValidator(_known_kernel), Field(json_schema_extra=_list_kernels)
    ] = Field(examples=["layernorm_bw"])
    shape: Annotated[
        tuple[Size, ...],
        Field(
            strict=False,
            min_length=1,
            max_length=MAX_RANK,
            fail_fast=True,
            json_schema_extra={"x-unit": "dimensions"},
        ),
    ] = Field(description="Dimensions of the first input", examples=[[3, 273, 1, 8462]])
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields that only this kernel has; group norm: num_groups",
        examples=[{}],
        json_schema_extra=_or_null,
    )
    numerics: Numerics = Field(default_factory=Numerics, json_schema_extra=_or_null)
    epsilon: Annotated[float, Field(gt=0.0)] = 1e-6
    inputs: Inputs = Field(
        default_factory=Inputs,
        description="A regime for x (and dy), and regimes of single tensors by name",
        examples=[{"regime": "uniform", "low": -1, "high": 1, "gamma": {"regime": "normal"}}],
        json_schema_extra=_or_null,
    )
    tolerance: AnyTolerance = Field(
        default_factory=Tolerance,
        description="Comparators of all outputs, or a map from outputs to comparators",
        examples=[{"rtol": 1e-3, "atol": 0.5}],
        json_schema_extra=_or_null,
    )
    memory: Annotated[
        Annotated[Literal["interleaved"], VALUE] | Annotated[Sharded, OBJECT], ObjectOrValue
    ] = Field("interleaved", examples=["interleaved", {"sharded": [8, 8]}])
    program: Literal["default", "legacy", "welford"] = "default"

    @classmethod
    def parse(cls, data: object, path: str = "test", *, max_elements: int = MAX_ELEMENTS) -> Self:
        """Parse the JSON object of a request; `path` is its place there. Raises FieldError."""
        spec = cls._read(data, path)
        spec.check_elements(max_elements, path)
        return spec

    def check_elements(self, most: int, path: str, setting: str = "") -> None:
        """Raise FieldError if a tensor has more elements, with the setting that says so."""
        if self.elements > most:
            raise FieldError(
                fields.join(path, "shape"),
                list(self.shape),
                f"has {self.elements} elements",
                limit=f"{most} elements" + (f" ({setting})" if setting else ""),
            )

    _names = NAMES_OF_KERNEL

    def _normalize(self) -> None:
        if prod(self.shape) > 2**53:  # beyond any limit of elements, and JSON's exact integers
            reason, limit = "has more than 2^53 elements", f"{MAX_ELEMENTS} elements"
            raise FieldError("shape", list(self.shape), reason, limit=limit)
        kernel = self._kernel
        parameters = kernel.parse_parameters(self.parameters, "parameters")
        kernel.shapes(self.shape, kernel.completed(parameters))
        numerics = self.numerics.of(kernel)
        flat = {name: kernel.flat_shape_of(name, self.shape, parameters) for name in kernel.drawn}
        lengths = {name: shape[-1] for name, shape in flat.items()}
        inputs = self.inputs.normalized(kernel, lengths)
        tolerance = tolerances.normalize(self.tolerance, kernel.outputs)
        self.__dict__.update(
            parameters=parameters, numerics=numerics, inputs=inputs, tolerance=tolerance
        )
        formats = {f"input.{name}": numerics.format_of(name) for name in self.float_names}
        formats |= {
            name: getattr(numerics, name)
            for name in ("output", "buffers", "accumulate", "fidelity")
        }
        features = lengths[kernel.inputs[0]]
        regimes.check_exact(inputs, self.kernel, formats, features, self.epsilon, "")

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def _kernel(self) -> Kernel:
        return KERNELS[self.kernel]

    @property
    def rows(self) -> int:
        """The number of rows of the first input; group norm's are its groups."""
        return self.flat_shape_of(self.input_names[0])[0]

    @property
    def features(self) -> int:
        """Elements of a row."""
        return self.flat_shape_of(self.input_names[0])[1]

    def parameter(self, name: str) -> Any:
        """Return a parameter of the kernel, or its default."""
        return self._kernel.completed(self.parameters)[name]

    @cached_property
    def elements(self) -> int:
        """The number of elements of the largest tensor."""
        return max(prod(self.shape_of(name)) for name in (*self.input_names, *self.outputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel produces."""
        return self._kernel.outputs

    @property
    def downstream(self) -> tuple[str, ...]:
        """Names of tensors that a build may derive from an output and return, too."""
        return self._kernel.downstream

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the kernel's input tensors, in the order of its signature."""
        return self._kernel.with_statistics(self.numerics.statistics).inputs

    @property
    def float_names(self) -> tuple[str, ...]:
        """Names of the inputs that aren't whole numbers."""
        return tuple(name for name in self.input_names if name not in self._kernel.whole)

    @property
    def drawn_names(self) -> tuple[str, ...]:
        """Names of the tensors that are drawn at random (mean and rstd are computed)."""
        return self._kernel.drawn

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """Return the shape of an input or output as executors see it."""
        return self._kernel.shape_of(tensor, self.shape, self.parameters)

    def flat_shape_of(self, tensor: str) -> tuple[int, ...]:
        """Return a tensor's shape in the domain: (rows, N), or (size,) of one that has no rows."""
        return self._kernel.flat_shape_of(tensor, self.shape, self.parameters)

    def matrix_shape_of(self, tensor: str) -> tuple[int, int]:
        """Return a tensor's shape in the domain as rows: (1, size) of one that has none."""
        flat = self.flat_shape_of(tensor)
        return (flat[0], flat[1]) if len(flat) == 2 else (1, flat[0])

    def is_per_row(self, tensor: str) -> bool:
        """Return whether a tensor has one value per row."""
        return tensor in self._kernel.per_row

    def regime(self, tensor: str) -> Regime:
        """Return the distribution of a drawn tensor."""
        return self.inputs.of(tensor, self._kernel)

    def bound_of(self, tensor: str) -> int | None:
        """Return the bound of a tensor of whole numbers, which are below; None of floats."""
        bound = self._kernel.whole.get(tensor)
        if bound is None:
            return None
        return bound(self.shape, self._kernel.completed(self.parameters))

    def tolerance_for(self, output: str) -> Tolerance | None:
        """Return the tolerance declared for an output; None if undeclared.

        An undeclared output counts only for the explanation.
        """
        return tolerances.declared_for(self.tolerance, output)

    @model_serializer
    def canonical(self) -> dict[str, Any]:
        """Return the spec in plain JSON types, without default fields; `parse` reads it back."""
        default = Numerics().of(self._kernel)
        numerics = {
            name: dict(value) if isinstance(value, Mapping) else value
            for name in Numerics.model_fields
            if (value := getattr(self.numerics, name)) != getattr(default, name)
        }
        plain: dict[str, Any] = {  # of the fields whose value is not plain JSON
            "shape": list(self.shape),
            "parameters": deepcopy(dict(self.parameters)),
            "numerics": numerics,
            "inputs": self.inputs.to_json(),
            "tolerance": tolerances.to_json(self.tolerance),
        }
        if isinstance(self.memory, Sharded):
            plain["memory"] = {"sharded": list(self.memory.sharded)}
        values = {name: plain.get(name, getattr(self, name)) for name in TestSpec.model_fields}
        return {
            name: value
            for name, value in values.items()
            if value not in ({}, TestSpec.model_fields[name].default)
        }

    @cached_property
    def key(self) -> str:
        """The key of the test. It never changes, and doesn't depend on how the test was written."""
        return key_of(self.canonical())

    @cached_property
    def workload_key(self) -> str:
        """The key of the spec without the tolerance: history and change points use it."""
        return key_of(
            {name: value for name, value in self.canonical().items() if name != "tolerance"}
        )
