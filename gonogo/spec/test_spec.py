"""The test spec: which kernel, shape, numerics, inputs and tolerance, validated once, with keys
that last for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from dataclasses import fields as dataclass_fields
from functools import cached_property
from math import prod
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields, regimes, tolerances
from gonogo.spec.canonical import key_of
from gonogo.spec.kernels.kernel import Extent, Kernel
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.regimes import Regime
from gonogo.spec.tolerances import Tolerance

MAX_ELEMENTS = 64 * 2**20
MAX_RANK = 8
MAX_GRID = 64
"""Rows or columns of a grid of cores: no chip has as many."""


FORMAT_NAMES = ("fp32", "tf32", "bf16", "fp16", "bfp8_b", "bfp4_b")
BLOCK_FORMATS = ("bfp8_b", "bfp4_b")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "output": FORMAT_NAMES,
    "accumulate": ("fp32", "bf16"),
    "fidelity": ("lofi", "hifi2", "hifi3", "hifi4"),
    "buffers": FORMAT_NAMES,
    "statistics": ("given", "own"),
    "srcb": ("tf32", "bf16"),
    "layout": ("tile", "row_major"),
}
PROGRAMS = ("default", "legacy", "welford")


@dataclass(frozen=True)
class Numerics:
    """The formats and switches of the arithmetic that the test asks for."""

    input: str | Mapping[str, str] = "bf16"
    """One format, or a map tensor -> format (a tensor not listed is bf16)."""
    output: str = "bf16"
    accumulate: str = "fp32"
    """The Dst registers."""
    fidelity: str = "hifi4"
    buffers: str = "bf16"
    """The format of stored intermediates."""
    statistics: str = "given"
    """Whether the backward kernel is given mean and rstd or makes its own; forward kernels always
    make their own."""
    srcb: str = "tf32"
    """What SrcB sees of an fp32 value in an op of mixed formats."""
    layout: str = "tile"

    def format_of(self, tensor: str) -> str:
        """The format in which a tensor is given to the kernel."""
        return self.input if isinstance(self.input, str) else self.input.get(tensor, "bf16")

    @classmethod
    def parse(cls, data: object, kernel: Kernel, path: str) -> Numerics:
        """From a JSON object, as `kernel` can have it. Raises FieldError."""
        given = fields.mapping({} if data is None else data, path)
        fields.known(given, ("input", *CHOICES), path)
        words = {
            name: fields.choice(given[name], CHOICES[name], fields.join(path, name))
            for name in CHOICES
            if name in given
        }
        if not kernel.given_statistics:
            words["statistics"] = "own"
        numerics = cls(**words)
        tensors = kernel.inputs(numerics.statistics)
        numerics = cls(
            _input_formats(given.get("input", "bf16"), tensors, fields.join(path, "input")), **words
        )
        shared = [
            name
            for name in (*map(numerics.format_of, tensors), numerics.output)
            if name in BLOCK_FORMATS
        ]
        if shared and numerics.layout == "row_major":
            raise FieldError(
                fields.join(path, "layout"),
                "row_major",
                f"{shared[0]} shares exponents within a tile",
                limit="tile",
            )
        if not kernel.block_formats and (
            *shared,
            *(name for name in (numerics.buffers,) if name in BLOCK_FORMATS),
        ):
            where = (
                "output" if numerics.output in BLOCK_FORMATS else "input" if shared else "buffers"
            )
            known = ", ".join(name for name in FORMAT_NAMES if name not in BLOCK_FORMATS)
            value = shared[0] if shared else numerics.buffers
            raise FieldError(
                fields.join(path, where),
                value,
                f"isn't known of {kernel.name}: its rows don't lie along tiles",
                limit=known,
            )
        return numerics


def _input_formats(value: object, tensors: tuple[str, ...], path: str) -> str | dict[str, str]:
    if not isinstance(value, Mapping):
        return fields.choice(value, FORMAT_NAMES, path)
    fields.known(fields.mapping(value, path), tensors, path)
    formats = {
        name: fields.choice(value.get(name, "bf16"), FORMAT_NAMES, fields.join(path, name))
        for name in tensors
    }
    if len(set(formats.values())) == 1:
        return formats[tensors[0]]
    return {name: each for name, each in formats.items() if each != "bf16"}


@dataclass(frozen=True)
class TestSpec:
    """A test, validated: constructing one with a wrong field raises FieldError with its path below
    "test".

    Its `workload` is the spec without the tolerance. Mappings are kept in their canonical form (see
    regimes.normalise and tolerances.normalise); specs are equal exactly when their keys are.
    """

    __test__ = False  # pytest: not a test case

    kernel: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Fields that only this kernel has (group norm: num_groups); those at their default are left
    out."""
    numerics: Numerics = field(default_factory=Numerics)
    epsilon: float = 1e-6
    inputs: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    memory: str | Mapping[str, Any] = "interleaved"
    program: str = "default"

    def __post_init__(self) -> None:
        self._normalise("test")

    @classmethod
    def parse(
        cls, data: object, *, max_elements: int = MAX_ELEMENTS, path: str = "test"
    ) -> TestSpec:
        """From the JSON object of a request; `path` is where it stands there. Raises FieldError."""
        given = fields.mapping(data, path)
        names = tuple(each.name for each in dataclass_fields(cls))
        fields.known(given, names, path)
        for each in dataclass_fields(cls):
            if (
                each.default is MISSING
                and each.default_factory is MISSING
                and each.name not in given
            ):
                raise FieldError(fields.join(path, each.name), None, "is required")
        spec = cls.__new__(cls)
        for each in dataclass_fields(cls):
            otherwise = (
                each.default_factory() if each.default_factory is not MISSING else each.default
            )
            object.__setattr__(spec, each.name, given.get(each.name, otherwise))
        spec._normalise(path)
        if spec.elements > max_elements:
            raise FieldError(
                fields.join(path, "shape"),
                list(spec.shape),
                f"has {spec.elements} elements",
                limit=f"{max_elements} elements",
            )
        return spec

    def _normalise(self, path: str) -> None:
        """Check every field and put its canonical form in place; the object isn't shared before
        that.
        """

        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        kernel = KERNELS[fields.choice(self.kernel, tuple(KERNELS), fields.join(path, "kernel"))]
        put("shape", _shape(self.shape, fields.join(path, "shape")))
        put("parameters", kernel.parse_parameters(self.parameters, fields.join(path, "parameters")))
        extent = kernel.extent(self.shape, self.parameters, path)
        numerics: object = self.numerics
        if isinstance(numerics, Numerics):
            numerics = {
                each.name: getattr(numerics, each.name) for each in dataclass_fields(Numerics)
            }
        put("numerics", Numerics.parse(numerics, kernel, fields.join(path, "numerics")))
        put("epsilon", fields.number(self.epsilon, fields.join(path, "epsilon"), above=0.0))
        lengths = {name: kernel.flat_shape_of(name, extent)[-1] for name in kernel.drawn}
        put(
            "inputs",
            regimes.normalise(
                self.inputs,
                kernel.drawn,
                lengths,
                fields.join(path, "inputs"),
                rows=kernel.drawn_rows(),
            ),
        )
        put(
            "tolerance",
            tolerances.normalise(self.tolerance, kernel.outputs, fields.join(path, "tolerance")),
        )
        put("memory", _memory(self.memory, fields.join(path, "memory")))
        put("program", fields.choice(self.program, PROGRAMS, fields.join(path, "program")))

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def _kernel(self) -> Kernel:
        return KERNELS[self.kernel]

    @cached_property
    def extent(self) -> Extent:
        """The matrix that the kernel works on."""
        return self._kernel.extent(self.shape, self.parameters, "test")

    @property
    def rows(self) -> int:
        """Rows that are reduced: the product of the leading dimensions, where the kernel reduces
        the last one.
        """
        return self.extent.rows

    @property
    def features(self) -> int:
        """Elements of a row."""
        return self.extent.features

    def parameter(self, name: str) -> Any:
        """A parameter of the kernel, or its default."""
        return self._kernel.parameter(self.parameters, name)

    @property
    def elements(self) -> int:
        """Elements of x."""
        return prod(self.shape)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel gives."""
        return self._kernel.outputs

    @property
    def downstream(self) -> tuple[str, ...]:
        """Names of tensors that a build may give beside the outputs: what it makes of one of
        them.
        """
        return self._kernel.downstream

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel is given, in the order of its signature."""
        return self._kernel.inputs(self.numerics.statistics)

    @property
    def drawn_names(self) -> tuple[str, ...]:
        """Names of the tensors that are drawn at random (mean and rstd are computed)."""
        return self._kernel.drawn

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """The shape of an input or output as executors see it: x, dy, y, dx: shape; mean, rstd: one
        value a row; others: a vector.
        """
        return self._kernel.shape_of(tensor, self.shape, self.extent)

    def flat_shape_of(self, tensor: str) -> tuple[int, ...]:
        """The shape in which the domain has it, rows flattened: x, dy, y, dx: (rows, features);
        mean, rstd: (rows,); others: (N,).
        """
        return self._kernel.flat_shape_of(tensor, self.extent)

    def is_matrix(self, tensor: str) -> bool:
        """Whether a tensor has a value for every element of x."""
        return self._kernel.is_matrix(tensor)

    def is_per_row(self, tensor: str) -> bool:
        """Whether a tensor has one value a row."""
        return tensor in self._kernel.per_row

    def regime(self, tensor: str) -> Regime:
        """What a drawn tensor is drawn from."""
        return regimes.of_tensor(self.inputs, tensor, rows=self._kernel.drawn_rows())

    def tolerance_for(self, output: str) -> Tolerance | None:
        """The tolerance declared for an output; None = undeclared: it counts for the explanation
        only.
        """
        return tolerances.for_output(self.tolerance, output)

    def canonical(self) -> dict[str, Any]:
        """The spec in plain JSON types, fields at their default dropped; TestSpec.parse gives the
        same spec back.
        """
        result: dict[str, Any] = {"kernel": self.kernel, "shape": list(self.shape)}
        if self.parameters:
            result["parameters"] = _plain(self.parameters)
        default = Numerics.parse({}, self._kernel, "")
        numerics = {
            each.name: _plain(value)
            for each in dataclass_fields(Numerics)
            if (value := getattr(self.numerics, each.name)) != getattr(default, each.name)
        }
        if numerics:
            result["numerics"] = numerics
        if self.epsilon != 1e-6:
            result["epsilon"] = self.epsilon
        for name in ("inputs", "tolerance"):
            if getattr(self, name):
                result[name] = _plain(getattr(self, name))
        if self.memory != "interleaved":
            result["memory"] = _plain(self.memory)
        if self.program != "default":
            result["program"] = self.program
        return result

    @cached_property
    def key(self) -> str:
        """The same for ever for the same test, however it was written."""
        return key_of(self.canonical())

    @cached_property
    def workload_key(self) -> str:
        """The key of the spec without the tolerance: history and change points hang on it."""
        return key_of(
            {name: value for name, value in self.canonical().items() if name != "tolerance"}
        )


def _plain(value: object) -> Any:
    """A copy in dicts and lists, which the caller may change."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _shape(value: object, path: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_RANK:
        raise FieldError(
            path, value, "must be a list of dimensions", limit=f"1 to {MAX_RANK} dimensions"
        )
    shape = tuple(
        fields.integer(each, fields.join(path, place), least=1) for place, each in enumerate(value)
    )
    if prod(shape) > 2**53:  # beyond any limit of elements, and beyond JSON's exact integers
        raise FieldError(
            path, list(shape), "has more than 2^53 elements", limit=f"{MAX_ELEMENTS} elements"
        )
    return shape


def _memory(value: object, path: str) -> str | dict[str, Any]:
    if not isinstance(value, Mapping):
        return fields.choice(value, ("interleaved",), path)
    fields.known(fields.mapping(value, path), ("sharded",), path)
    where = fields.join(path, "sharded")
    grid = value.get("sharded")
    if not isinstance(grid, list | tuple) or len(grid) != 2:
        raise FieldError(where, grid, "must be the grid [rows, columns]")
    return {
        "sharded": [
            fields.integer(each, fields.join(where, place), least=1, most=MAX_GRID)
            for place, each in enumerate(grid)
        ]
    }
