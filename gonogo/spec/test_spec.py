"""The test spec: kernel, shape, numerics, inputs and tolerance, validated once.

Its keys never change.
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
"""Rows or columns of a grid of cores. No chip has that many."""


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
    """The formats and switches of the arithmetic that the test requests."""

    input: str | Mapping[str, str] = "bf16"
    """One format, or a map tensor -> format (a tensor not listed is bf16)."""
    output: str = "bf16"
    accumulate: str = "fp32"
    """The format of the Dst registers."""
    fidelity: str = "hifi4"
    buffers: str = "bf16"
    """The format of stored intermediates."""
    statistics: str = "given"
    """The source of the backward kernel's mean and rstd: its inputs (given), or its own
    computation; forward kernels always compute their own."""
    srcb: str = "tf32"
    """The format in which SrcB sees an fp32 value in an op of mixed formats."""
    layout: str = "tile"

    def format_of(self, tensor: str) -> str:
        """Return the format of a tensor that is the kernel's input."""
        return self.input if isinstance(self.input, str) else self.input.get(tensor, "bf16")

    @classmethod
    def parse(cls, data: object, kernel: Kernel, path: str) -> Numerics:
        """Parse a JSON object and check it against `kernel`. Raises FieldError."""
        given = fields.mapping({} if data is None else data, path)
        fields.known(given, ("input", *CHOICES), path)
        choices = {
            name: fields.choice(given[name], CHOICES[name], fields.join(path, name))
            for name in CHOICES
            if name in given
        }
        if not kernel.given_statistics:
            choices["statistics"] = "own"
        numerics = cls(**choices)
        tensors = kernel.inputs(numerics.statistics)
        numerics = cls(
            _input_formats(given.get("input", "bf16"), tensors, fields.join(path, "input")),
            **choices,
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
            allowed = ", ".join(name for name in FORMAT_NAMES if name not in BLOCK_FORMATS)
            value = shared[0] if shared else numerics.buffers
            raise FieldError(
                fields.join(path, where),
                value,
                f"isn't allowed for {kernel.name}: its rows don't lie along tiles",
                limit=allowed,
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
    return {
        name: tensor_format for name, tensor_format in formats.items() if tensor_format != "bf16"
    }


@dataclass(frozen=True)
class TestSpec:
    """A validated test: a wrong field raises FieldError with its path below "test".

    Its `workload` is the spec without the tolerance. Mappings are kept in their canonical form (see
    regimes.normalize and tolerances.normalize); specs are equal exactly when their keys are.
    """

    __test__ = False  # pytest: not a test case

    kernel: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Fields that only this kernel has (group norm: num_groups), without defaults."""
    numerics: Numerics = field(default_factory=Numerics)
    epsilon: float = 1e-6
    inputs: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    memory: str | Mapping[str, Any] = "interleaved"
    program: str = "default"

    def __post_init__(self) -> None:
        self._normalize("test")

    @classmethod
    def parse(
        cls, data: object, *, max_elements: int = MAX_ELEMENTS, path: str = "test"
    ) -> TestSpec:
        """Parse the JSON object of a request; `path` is its place there. Raises FieldError."""
        given = fields.mapping(data, path)
        names = tuple(member.name for member in dataclass_fields(cls))
        fields.known(given, names, path)
        for member in dataclass_fields(cls):
            if (
                member.default is MISSING
                and member.default_factory is MISSING
                and member.name not in given
            ):
                raise FieldError(fields.join(path, member.name), None, "is required")
        spec = cls.__new__(cls)
        for member in dataclass_fields(cls):
            default = (
                member.default_factory()
                if member.default_factory is not MISSING
                else member.default
            )
            object.__setattr__(spec, member.name, given.get(member.name, default))
        spec._normalize(path)
        if spec.elements > max_elements:
            raise FieldError(
                fields.join(path, "shape"),
                list(spec.shape),
                f"has {spec.elements} elements",
                limit=f"{max_elements} elements",
            )
        return spec

    def _normalize(self, path: str) -> None:
        """Check every field and replace it by its canonical form.

        It runs before the object is shared.
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
                member.name: getattr(numerics, member.name) for member in dataclass_fields(Numerics)
            }
        put("numerics", Numerics.parse(numerics, kernel, fields.join(path, "numerics")))
        put("epsilon", fields.number(self.epsilon, fields.join(path, "epsilon"), above=0.0))
        lengths = {name: kernel.flat_shape_of(name, extent)[-1] for name in kernel.drawn}
        put(
            "inputs",
            regimes.normalize(
                self.inputs,
                kernel.drawn,
                lengths,
                fields.join(path, "inputs"),
                rows=kernel.drawn_rows(),
            ),
        )
        formats = {f"input.{name}": self.numerics.format_of(name) for name in self.input_names}
        formats |= {
            name: getattr(self.numerics, name)
            for name in ("output", "buffers", "accumulate", "fidelity")
        }
        regimes.check_exact(self.inputs, self.kernel, formats, extent.features, self.epsilon, path)
        put(
            "tolerance",
            tolerances.normalize(self.tolerance, kernel.outputs, fields.join(path, "tolerance")),
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
        """The number of rows that are reduced.

        It is the product of the leading dimensions where the kernel reduces the last one.
        """
        return self.extent.rows

    @property
    def features(self) -> int:
        """Elements of a row."""
        return self.extent.features

    def parameter(self, name: str) -> Any:
        """Return a parameter of the kernel, or its default."""
        return self._kernel.parameter(self.parameters, name)

    @property
    def elements(self) -> int:
        """The number of elements of x."""
        return prod(self.shape)

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
        return self._kernel.inputs(self.numerics.statistics)

    @property
    def drawn_names(self) -> tuple[str, ...]:
        """Names of the tensors that are drawn at random (mean and rstd are computed)."""
        return self._kernel.drawn

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """Return the shape of an input or output as executors see it.

        x, dy, y, dx: the test's shape; mean, rstd: one value per row; others: a vector.
        """
        return self._kernel.shape_of(tensor, self.shape, self.extent)

    def flat_shape_of(self, tensor: str) -> tuple[int, ...]:
        """Return a tensor's shape in the domain, with rows flattened.

        x, dy, y, dx: (rows, features); mean, rstd: (rows,); others: (N,).
        """
        return self._kernel.flat_shape_of(tensor, self.extent)

    def is_matrix(self, tensor: str) -> bool:
        """Return whether a tensor has a value for every element of x."""
        return self._kernel.is_matrix(tensor)

    def is_per_row(self, tensor: str) -> bool:
        """Return whether a tensor has one value per row."""
        return tensor in self._kernel.per_row

    def regime(self, tensor: str) -> Regime:
        """Return the distribution of a drawn tensor."""
        return regimes.of_tensor(self.inputs, tensor, rows=self._kernel.drawn_rows())

    def tolerance_for(self, output: str) -> Tolerance | None:
        """Return the tolerance declared for an output; None if undeclared.

        An undeclared output counts only for the explanation.
        """
        return tolerances.for_output(self.tolerance, output)

    def canonical(self) -> dict[str, Any]:
        """Return the spec in plain JSON types, without default fields.

        TestSpec.parse reads it back.
        """
        result: dict[str, Any] = {"kernel": self.kernel, "shape": list(self.shape)}
        if self.parameters:
            result["parameters"] = _plain(self.parameters)
        default = Numerics.parse({}, self._kernel, "")
        numerics = {
            member.name: _plain(value)
            for member in dataclass_fields(Numerics)
            if (value := getattr(self.numerics, member.name)) != getattr(default, member.name)
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
        """The key of the test. It never changes, and doesn't depend on how the test was written."""
        return key_of(self.canonical())

    @cached_property
    def workload_key(self) -> str:
        """The key of the spec without the tolerance: history and change points use it."""
        return key_of(
            {name: value for name, value in self.canonical().items() if name != "tolerance"}
        )


def _plain(value: object) -> Any:
    """Return a copy in dicts and lists, which the caller may change."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _shape(value: object, path: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_RANK:
        raise FieldError(
            path, value, "must be a list of dimensions", limit=f"1 to {MAX_RANK} dimensions"
        )
    shape = tuple(
        fields.integer(size, fields.join(path, axis), least=1) for axis, size in enumerate(value)
    )
    if prod(shape) >= 2**53:  # beyond any limit of elements, and beyond JSON's exact integers
        raise FieldError(
            path, list(shape), "has 2^53 elements or more", limit=f"{MAX_ELEMENTS} elements"
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
            fields.integer(size, fields.join(where, axis), least=1, most=MAX_GRID)
            for axis, size in enumerate(grid)
        ]
    }
