"""The test spec: which kernel, shape, numerics, inputs and tolerance, validated once, with keys that last for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from dataclasses import fields as dataclass_fields
from functools import cached_property
from math import prod
from typing import Any

from gonogo import fields, regimes, tolerances
from gonogo.canonical import key_of
from gonogo.problems import FieldError
from gonogo.regimes import Regime
from gonogo.tolerances import Tolerance

MAX_ELEMENTS = 64 * 2**20
MAX_RANK = 8
MAX_GRID = 64
"""Rows or columns of a grid of cores: no chip has as many."""


@dataclass(frozen=True)
class Kernel:
    """An operation under test: its outputs, and the tensors that are drawn for it."""

    name: str
    outputs: tuple[str, ...]
    drawn: tuple[str, ...]
    given_statistics: bool
    """Whether it can be given mean and rstd; otherwise it always makes its own."""


KERNELS: Mapping[str, Kernel] = {
    "layernorm_fw": Kernel("layernorm_fw", ("y", "mean", "rstd"), ("x", "gamma", "beta"), given_statistics=False),
    "layernorm_bw": Kernel("layernorm_bw", ("dx", "dgamma", "dbeta"), ("x", "gamma", "dy"), given_statistics=True),
}

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
    """Whether the backward kernel is given mean and rstd or makes its own; forward kernels always make their own."""
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
        words = {name: fields.choice(given[name], CHOICES[name], fields.join(path, name)) for name in CHOICES if name in given}
        if not kernel.given_statistics:
            words["statistics"] = "own"
        numerics = cls(**words)
        tensors = _input_names(kernel, numerics.statistics)
        numerics = cls(_input_formats(given.get("input", "bf16"), tensors, fields.join(path, "input")), **words)
        if numerics.layout == "row_major":
            for name in (*map(numerics.format_of, tensors), numerics.output):
                if name in BLOCK_FORMATS:
                    raise FieldError(fields.join(path, "layout"), "row_major", f"{name} shares exponents within a tile", limit="tile")
        return numerics


def _input_names(kernel: Kernel, statistics: str) -> tuple[str, ...]:
    if not kernel.given_statistics or statistics == "own":
        return kernel.drawn
    return ("x", "gamma", "mean", "rstd", "dy")


def _input_formats(value: object, tensors: tuple[str, ...], path: str) -> str | dict[str, str]:
    if not isinstance(value, Mapping):
        return fields.choice(value, FORMAT_NAMES, path)
    fields.known(fields.mapping(value, path), tensors, path)
    formats = {name: fields.choice(value.get(name, "bf16"), FORMAT_NAMES, fields.join(path, name)) for name in tensors}
    if len(set(formats.values())) == 1:
        return formats[tensors[0]]
    return {name: each for name, each in formats.items() if each != "bf16"}


@dataclass(frozen=True)
class TestSpec:
    """A test, validated: constructing one with a wrong field raises FieldError with its path below "test".

    Its `subject` is the spec without the tolerance. Mappings are kept in their canonical form (see regimes.normalise and
    tolerances.normalise); specs are equal exactly when their keys are.
    """

    __test__ = False  # pytest: not a test case

    kernel: str
    shape: tuple[int, ...]
    numerics: Numerics = field(default_factory=Numerics)
    epsilon: float = 1e-6
    inputs: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    memory: str | Mapping[str, Any] = "interleaved"
    program: str = "default"

    def __post_init__(self) -> None:
        self._normalise("test")

    @classmethod
    def parse(cls, data: object, *, max_elements: int = MAX_ELEMENTS, path: str = "test") -> TestSpec:
        """From the JSON object of a request; `path` is where it stands there. Raises FieldError."""
        given = fields.mapping(data, path)
        names = tuple(each.name for each in dataclass_fields(cls))
        fields.known(given, names, path)
        for each in dataclass_fields(cls):
            if each.default is MISSING and each.default_factory is MISSING and each.name not in given:
                raise FieldError(fields.join(path, each.name), None, "is required")
        spec = cls.__new__(cls)
        for each in dataclass_fields(cls):
            otherwise = each.default_factory() if each.default_factory is not MISSING else each.default
            object.__setattr__(spec, each.name, given.get(each.name, otherwise))
        spec._normalise(path)
        if spec.elements > max_elements:
            raise FieldError(
                fields.join(path, "shape"), list(spec.shape), f"has {spec.elements} elements", limit=f"{max_elements} elements"
            )
        return spec

    def _normalise(self, path: str) -> None:
        """Check every field and put its canonical form in place; the object isn't shared before that."""

        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        kernel = KERNELS[fields.choice(self.kernel, tuple(KERNELS), fields.join(path, "kernel"))]
        put("shape", _shape(self.shape, fields.join(path, "shape")))
        numerics: object = self.numerics
        if isinstance(numerics, Numerics):
            numerics = {each.name: getattr(numerics, each.name) for each in dataclass_fields(Numerics)}
        put("numerics", Numerics.parse(numerics, kernel, fields.join(path, "numerics")))
        put("epsilon", fields.number(self.epsilon, fields.join(path, "epsilon"), above=0.0))
        put("inputs", regimes.normalise(self.inputs, kernel.drawn, self.shape[-1], fields.join(path, "inputs")))
        put("tolerance", tolerances.normalise(self.tolerance, kernel.outputs, fields.join(path, "tolerance")))
        put("memory", _memory(self.memory, fields.join(path, "memory")))
        put("program", fields.choice(self.program, PROGRAMS, fields.join(path, "program")))

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def rows(self) -> int:
        """Rows that are normalised: the product of the leading dimensions."""
        return prod(self.shape[:-1])

    @property
    def features(self) -> int:
        """Elements of a row: the last dimension."""
        return self.shape[-1]

    @property
    def elements(self) -> int:
        """Elements of x."""
        return prod(self.shape)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel gives."""
        return KERNELS[self.kernel].outputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the tensors that the kernel is given, in the order of its signature."""
        return _input_names(KERNELS[self.kernel], self.numerics.statistics)

    @property
    def drawn_names(self) -> tuple[str, ...]:
        """Names of the tensors that are drawn at random (mean and rstd are computed)."""
        return KERNELS[self.kernel].drawn

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """The shape of an input or output as executors see it: x, dy, y, dx: shape; mean, rstd: shape[:-1]; others: [N]."""
        if tensor in ("x", "dy", "y", "dx"):
            return self.shape
        return self.shape[:-1] if tensor in ("mean", "rstd") else (self.features,)

    def flat_shape_of(self, tensor: str) -> tuple[int, ...]:
        """The shape in which the domain has it, rows flattened: x, dy, y, dx: (rows, N); mean, rstd: (rows,); others: (N,)."""
        if tensor in ("x", "dy", "y", "dx"):
            return (self.rows, self.features)
        return (self.rows,) if tensor in ("mean", "rstd") else (self.features,)

    def regime(self, tensor: str) -> Regime:
        """What a drawn tensor is drawn from."""
        return regimes.of_tensor(self.inputs, tensor)

    def tolerance_for(self, output: str) -> Tolerance | None:
        """The tolerance declared for an output; None = undeclared: it counts for the explanation only."""
        return tolerances.for_output(self.tolerance, output)

    def canonical(self) -> dict[str, Any]:
        """The spec in plain JSON types, fields at their default dropped; TestSpec.parse gives the same spec back."""
        result: dict[str, Any] = {"kernel": self.kernel, "shape": list(self.shape)}
        default = Numerics.parse({}, KERNELS[self.kernel], "")
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
    def subject_key(self) -> str:
        """The key of the spec without the tolerance: history and change points hang on it."""
        return key_of({name: value for name, value in self.canonical().items() if name != "tolerance"})


def _plain(value: object) -> Any:
    """A copy in dicts and lists, which the caller may change."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _shape(value: object, path: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_RANK:
        raise FieldError(path, value, "must be a list of dimensions", limit=f"1 to {MAX_RANK} dimensions")
    shape = tuple(fields.integer(each, fields.join(path, place), least=1) for place, each in enumerate(value))
    if prod(shape) > 2**53:  # beyond any limit of elements, and beyond JSON's exact integers
        raise FieldError(path, list(shape), "has more than 2^53 elements", limit=f"{MAX_ELEMENTS} elements")
    return shape


def _memory(value: object, path: str) -> str | dict[str, Any]:
    if not isinstance(value, Mapping):
        return fields.choice(value, ("interleaved",), path)
    fields.known(fields.mapping(value, path), ("sharded",), path)
    where = fields.join(path, "sharded")
    grid = value.get("sharded")
    if not isinstance(grid, list | tuple) or len(grid) != 2:
        raise FieldError(where, grid, "must be the grid [rows, columns]")
    return {"sharded": [fields.integer(each, fields.join(where, place), least=1, most=MAX_GRID) for place, each in enumerate(grid)]}
