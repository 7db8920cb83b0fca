"""Input regimes: the distribution of each drawn tensor of a test, in one canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Kernel
from gonogo.spec.executors import ON_WORMHOLE
from gonogo.spec.validation import (
    NO_MINUS_ZERO,
    OBJECT,
    VALUE,
    WHOLE,
    Model,
    ObjectOrValue,
)

TILE = 32
"""Columns of a tile."""

_LARGEST = 3.3895313892515355e38
"""The largest bf16: bf16 inputs beyond it would be infinite."""

_MAX_DEVIATIONS = 7
"""No normal deviate that is ever drawn is larger (2**-33 is at 6.3)."""

PARAMETERS: Mapping[str, Mapping[str, float | None]] = {
    "uniform": {"low": -1.0, "high": 1.0},
    "normal": {"mean": 0.0, "std": 1.0},
    "constant": {"value": None},
    "offset": {"offset": None, "std": 1.0},
    "hot_tile": {"tile": None, "value": None},
    "ramp": {"low": -1.0, "high": 1.0},
    "exact": {},
}
"""regime -> its parameters with their defaults; None = must be given."""

EXACT = "exact"
"""The regime that draws all tensors of a test together, so that right kernels agree to the bit."""

EXACT_KERNELS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")
EXACT_FORMATS = ("fp32", "tf32", "bf16", "fp16")
_EXACT_NUMERICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "accumulate": (("fp32",), "a 16-bit accumulator loses bits after 256 steps"),
    "fidelity": (("hifi4",), "its products lose bits"),
}
"""Field -> what it may be, and why nothing else; formats are EXACT_FORMATS."""
MAX_EXACT_FEATURES = 2**20
"""16 N, the sum of squares of a row of integers up to 4, stays within the 2^24 of fp32."""
EXACT_EPSILON = (2.0**-80, 1.0)
MAX_EXACT_EPSILON_FP16 = 2.0**-16
"""Variances of 2^22 eps to 2^28 eps absorb epsilon; squares of fp16 end at 65504."""
MAX_TRUNCATED_GRADIENT = 4096
"""A Wormhole reads 11 bits of a gradient's partial sums. Those over more than 128 tiles need
more."""

Value = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST), NO_MINUS_ZERO]


def _parameter(sentence: str, name: str) -> Any:
    """Return a regime's parameter, whose description has its default in each regime."""
    places = [
        f"{regime} (needed)" if defaults[name] is None else f"{regime} (default {defaults[name]:g})"
        for regime, defaults in PARAMETERS.items()
        if name in defaults
    ]
    return Field(None, description=f"{sentence}: {', '.join(places)}")


class Regime(Model):
    """One tensor's distribution.

    uniform: U[low, high). normal: mean + std z. constant: value. offset: offset + std z (a large
    common part with a small noise). hot_tile: U[-1, 1) but `value` in the 32 columns of tile
    `tile`, counted from 0. ramp: from low (first column) to high (last column) in equal steps, the
    same in every row. exact: drawn together with all other tensors, so that right kernels agree to
    the bit; the only member of a test's inputs.
    """

    regime: Literal["uniform", "normal", "constant", "offset", "hot_tile", "ramp", "exact"] = (
        "uniform"
    )
    low: Value | None = _parameter("Smallest value", "low")
    high: Value | None = _parameter("Largest value", "high")
    mean: Value | None = _parameter("Mean", "mean")
    offset: Value | None = _parameter("Common part", "offset")
    tile: Annotated[int, Field(ge=0), WHOLE] | None = _parameter(
        "Tile of 32 columns, from 0", "tile"
    )
    value: Value | None = _parameter("The value", "value")
    std: Annotated[float, Field(ge=0.0, le=_LARGEST), NO_MINUS_ZERO] | None = _parameter(
        "Standard deviation", "std"
    )

    def __getitem__(self, parameter: str) -> float:
        value: float = getattr(self, parameter)
        return value

    def to_json(self) -> dict[str, Any]:
        """Return {"regime": name} with the regime's parameters only; the tile is an int."""
        return {"regime": self.regime} | {
            name: getattr(self, name) for name in PARAMETERS[self.regime]
        }

    def completed(self, features: int, path: str) -> dict[str, Any]:
        """Return its canonical JSON, with defaults, for a tensor of so many columns.

        Raises FieldError: a parameter is missing, too large, or another regime's.
        """
        defaults = PARAMETERS[self.regime]
        given = {name: getattr(self, name) for name in _ALL_PARAMETERS}
        given = {name: value for name, value in given.items() if value is not None}
        fields.known(given, defaults, path)
        values: dict[str, Any] = {name: given.get(name, defaults[name]) for name in defaults}
        for name, value in values.items():
            if value is None:
                reason = f"the regime {self.regime} needs it"
                raise FieldError(fields.join(path, name), None, reason)
        if "tile" in values:
            most = (features + TILE - 1) // TILE - 1
            fields.integer(values["tile"], fields.join(path, "tile"), least=0, most=most)
        if "high" in values:
            low, high = values["low"], values["high"]
            fields.number(low, fields.join(path, "low"), most=high)
            if high - low > _LARGEST:
                limit = f"high - low <= {_LARGEST:g}"
                where = fields.join(path, "high")
                raise FieldError(where, high, "is too far from low", limit=limit)
        if "std" in values:
            room = (_LARGEST - abs(values.get("mean", values.get("offset", 0.0)))) / _MAX_DEVIATIONS
            fields.number(values["std"], fields.join(path, "std"), most=room)
        return {"regime": self.regime, **values}


_ALL_PARAMETERS = tuple(name for name in Regime.model_fields if name != "regime")
_TensorRegime = Annotated[
    Annotated[Value, VALUE] | Annotated[Regime, OBJECT],
    ObjectOrValue,
    Field(description="A tensor's own regime; a number is a constant"),
]


class Inputs(Regime):
    """The distributions of a test's drawn tensors.

    The regime at the top is that of x, and of dy unless dy has its own. Every tensor may have its
    own regime, or a number, which is a constant. gamma and beta without one are U[0, 1).
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _TensorRegime] = Field(init=False)

    @property
    def tensors(self) -> Mapping[str, Regime | float]:
        """The tensors that have a regime of their own."""
        return self.__pydantic_extra__

    @property
    def exact(self) -> bool:
        """Return whether all tensors are drawn together, see gonogo.exactness."""
        return self.regime == EXACT

    def to_json(self) -> dict[str, Any]:
        """Return canonical inputs in plain JSON types; {} when all is default."""
        return self.model_dump(exclude_unset=True)

    def of(self, tensor: str, kernel: Kernel) -> Regime:
        """Return the regime of one tensor, read from the canonical form."""
        listed = self.tensors.get(tensor)
        if isinstance(listed, Regime):
            return listed
        defaults, rows = _defaults(kernel), _top(kernel)
        if self.exact or (tensor in rows and "regime" in self.model_fields_set):
            return Regime(**{name: getattr(self, name) for name in Regime.model_fields})
        return Regime(**defaults[tensor])

    def normalized(self, kernel: Kernel, columns: Mapping[str, int]) -> Inputs:
        """Return the canonical form, whose regimes are written in full.

        columns: those of the drawn tensors. Its top is the regime of the first one, unless that is
        the default; only tensors that differ from theirs are listed. Raises FieldError below
        "inputs".
        """
        if self.exact:
            fields.known(self.model_dump(exclude_unset=True), ("regime",), "inputs")
            return self
        defaults, rows = _defaults(kernel), _top(kernel)
        fields.known(self.tensors, tuple(defaults), "inputs")
        first = rows[0]  # x: its regime is the one at the top
        resolved = dict(defaults)
        # In the short form the top regime needs its `value` only for row tensors not listed.
        given_top = self.model_fields_set - set(self.tensors)
        is_short = given_top == {"regime"} and self.regime == "constant"
        missing = [name for name in rows if name not in self.tensors]
        if is_short and self.tensors and missing:
            reason = "the regime constant needs it (or `value` for all)"
            raise FieldError(f"inputs.{missing[0]}", None, reason)
        if given_top and (not is_short or missing):
            resolved |= dict.fromkeys(rows, self.completed(columns[first], "inputs"))
        for name, given in self.tensors.items():
            where = f"inputs.{name}"
            regime = given if isinstance(given, Regime) else Regime(regime="constant", value=given)
            if regime.regime == EXACT:
                reason = "draws all tensors of a test together"
                limit = 'the only member of inputs: {"regime": "exact"}'
                raise FieldError(f"{where}.regime", EXACT, reason, limit=limit)
            resolved[name] = regime.completed(columns[name], where)
        top = resolved[first] if resolved[first] != defaults[first] else {}
        unlisted = defaults | (dict.fromkeys(rows, top) if top else {})
        listed = {name: one for name, one in resolved.items() if one != unlisted[name]}
        return Inputs.parse(top | listed)


_ROWS: dict[str, Any] = {"regime": "uniform", "low": -1.0, "high": 1.0}
_VECTOR: dict[str, Any] = {"regime": "uniform", "low": 0.0, "high": 1.0}
"""The default regimes: U[-1, 1) of tensors with rows (x, dy), U[0, 1) of vectors (gamma, beta)."""


def _defaults(kernel: Kernel) -> dict[str, dict[str, Any]]:
    """Return the regime of each tensor of floats that a test doesn't name."""
    plain = {name: _ROWS if kernel.has_rows(name) else _VECTOR for name in kernel.drawn_floats}
    declared = {name: Regime(**regime).completed(1, "") for name, regime in kernel.regimes.items()}
    return plain | {name: regime for name, regime in declared.items() if name in plain}


def _top(kernel: Kernel) -> list[str]:
    """Return the tensors that take the regime at the top of a test's inputs, the first one first.

    They are the first tensor, and those with rows for which the kernel has no regime.
    """
    first, *others = kernel.drawn_floats
    plain = [name for name in others if kernel.has_rows(name) and name not in kernel.regimes]
    return [first, *plain]


def check_exact(
    inputs: Inputs,
    kernel: str,
    formats: Mapping[str, str],
    features: int,
    epsilon: float,
    path: str,
) -> None:
    """Check that a test can have exact inputs, where its regime is `exact`.

    formats: the values of the numerics by field: input (one per tensor, as input.x), output,
    buffers, accumulate, fidelity. Raises FieldError.
    """
    if not inputs.exact:
        return
    if kernel not in EXACT_KERNELS:
        where, reason = fields.join(path, "inputs.regime"), f"has no exact inputs for {kernel}"
        raise FieldError(where, EXACT, reason, limit=", ".join(EXACT_KERNELS))
    for name, value in formats.items():
        allowed, why = _EXACT_NUMERICS.get(name, (EXACT_FORMATS, "values share an exponent"))
        if value not in allowed:
            where = fields.join(path, f"numerics.{name}")
            raise FieldError(where, value, f"isn't exact: {why}", limit=", ".join(allowed))
    if features > MAX_EXACT_FEATURES:
        reason = "is too long for exact sums in fp32"
        limit = f"N <= {MAX_EXACT_FEATURES} with exact inputs"
        raise FieldError(fields.join(path, "shape"), features, reason, limit=limit)
    least, most = EXACT_EPSILON
    most = MAX_EXACT_EPSILON_FP16 if "fp16" in formats.values() else most
    fields.number(epsilon, fields.join(path, "epsilon"), least=least, most=most)


def check_exact_executor(
    inputs: Inputs, executor: str, kernel: str, features: int, path: str
) -> None:
    """Check that an executor can be exact at N = features, where the regime is `exact`.

    Raises FieldError.
    """
    if not inputs.exact or executor not in ON_WORMHOLE:
        return
    if features & (features - 1):
        reason = f"isn't exact on {executor}, which multiplies by 1/N truncated to bf16"
        limit = "N = a power of two with exact inputs"
        raise FieldError(fields.join(path, "shape"), features, reason, limit=limit)
    if kernel.endswith("_bw") and features > MAX_TRUNCATED_GRADIENT:
        reason = f"isn't exact on {executor}, which reads 11 bits of partial sums"
        limit = f"N <= {MAX_TRUNCATED_GRADIENT} with exact inputs of a gradient"
        raise FieldError(fields.join(path, "shape"), features, reason, limit=limit)
