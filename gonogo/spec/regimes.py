"""Input regimes: the distribution of each drawn tensor of a test, in one canonical form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.executors import ON_WORMHOLE

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
MAX_EXACT_FEATURES = 2**20
"""16 N, the sum of squares of a row of integers up to 4, stays within the 2^24 of fp32."""
EXACT_EPSILON = (2.0**-80, 1.0)
MAX_EXACT_EPSILON_FP16 = 2.0**-16
"""Variances of 2^22 eps to 2^28 eps absorb epsilon; squares of fp16 end at 65504."""
MAX_TRUNCATED_GRADIENT = 4096
"""A Wormhole reads 11 bits of a gradient's partial sums. Those over more than 128 tiles need
more."""

ROW_TENSORS = ("x", "dy")
"""Tensors that are drawn for every row, from the test's own regime. The others are one row
(gamma, beta) with a regime of their own. A kernel whose tensors have other names lists its own."""


@dataclass(frozen=True)
class Regime:
    """One tensor's distribution.

    uniform: U[low, high). normal: mean + std z. constant: value. offset: offset + std z (a large
    common part with a small noise). hot_tile: U[-1, 1) but `value` in the 32 columns of tile
    `tile`, counted from 0. ramp: from low (first column) to high (last column) in equal steps, the
    same in every row. exact: drawn together with all other tensors, see gonogo.exact.
    """

    name: str
    parameters: tuple[tuple[str, float], ...]

    def __getitem__(self, parameter: str) -> float:
        return dict(self.parameters)[parameter]

    def to_json(self) -> dict[str, Any]:
        """Return {"regime": name, and all parameters}; the tile is an int."""
        return {
            "regime": self.name,
            **{name: int(value) if name == "tile" else value for name, value in self.parameters},
        }


def _regime(name: str, **parameters: float) -> Regime:
    return Regime(name, tuple((parameter, parameters[parameter]) for parameter in PARAMETERS[name]))


DEFAULT_ROWS = _regime("uniform", low=-1.0, high=1.0)
DEFAULT_VECTOR = _regime("uniform", low=0.0, high=1.0)


def default(tensor: str, rows: Sequence[str] = ROW_TENSORS) -> Regime:
    """Return the default regime: U[-1, 1) for x and dy, U[0, 1) for gamma and beta."""
    return DEFAULT_ROWS if tensor in rows else DEFAULT_VECTOR


def parse_regime(data: object, features: int, path: str) -> Regime:
    """Parse a regime object, or a number, which is short for a constant. Raises FieldError."""
    if isinstance(data, int | float) and not isinstance(data, bool):
        data = {"regime": "constant", "value": data}
    given = fields.mapping(data, path)
    name = fields.choice(
        given.get("regime", "uniform"), tuple(PARAMETERS), fields.join(path, "regime")
    )
    if name == EXACT:
        reason = "draws all tensors of a test together"
        limit = 'the only member of inputs: {"regime": "exact"}'
        raise FieldError(fields.join(path, "regime"), name, reason, limit=limit)
    defaults = PARAMETERS[name]
    fields.known(given, ("regime", *defaults), path)
    values: dict[str, float] = {}
    for parameter, default in defaults.items():
        where = fields.join(path, parameter)
        if parameter not in given and default is None:
            raise FieldError(where, None, f"the regime {name} needs it")
        value = given.get(parameter, default)
        if parameter == "tile":
            values[parameter] = fields.integer(
                value, where, least=0, most=(features + TILE - 1) // TILE - 1
            )
        else:
            values[parameter] = fields.number(
                value, where, least=0.0 if parameter == "std" else -_LARGEST, most=_LARGEST
            )
    if "high" in values:
        if values["low"] > values["high"]:
            raise FieldError(
                fields.join(path, "low"),
                values["low"],
                "is above high",
                limit=f"<= {values['high']:g}",
            )
        if values["high"] - values["low"] > _LARGEST:
            raise FieldError(
                fields.join(path, "high"),
                values["high"],
                "is too far from low",
                limit=f"high - low <= {_LARGEST:g}",
            )
    if "std" in values:
        room = (_LARGEST - abs(values.get("mean", values.get("offset", 0.0)))) / _MAX_DEVIATIONS
        fields.number(values["std"], fields.join(path, "std"), most=room)
    return _regime(name, **values)


def normalize(
    data: object,
    tensors: Sequence[str],
    features: int | Mapping[str, int],
    path: str,
    *,
    rows: Sequence[str] = ROW_TENSORS,
) -> dict[str, Any]:
    """Return the canonical form of a test's `inputs`: {} when all is default.

    `tensors` are the drawn ones (x, dy, gamma, beta as far as the kernel has them), `features`
    their columns, `rows` those with a value for every element. The regime at the top is x's (and
    dy's unless dy is listed); gamma and beta are listed where they aren't U[0, 1). Regimes are
    written in full. Accepts a regime for x and dy at the top, an object (or a number, a constant)
    per tensor in addition to it or instead of it, and the short form {"regime": "constant", "x":
    .5, "dy": 1, "gamma": 1}. Raises FieldError.
    """
    if data is None:
        return {}
    given = fields.mapping(data, path)
    if given.get("regime") == EXACT:
        fields.known(given, ("regime",), path)
        return {"regime": EXACT}
    listed_tensors = {name: given[name] for name in given if name in tensors}
    top = {name: value for name, value in given.items() if name not in listed_tensors}
    regimes: dict[str, Regime] = {}
    rows = [name for name in rows if name in tensors]
    columns = {name: features if isinstance(features, int) else features[name] for name in tensors}
    first = rows[0]  # x: its regime is the one at the top
    if top:
        # In the short form the top regime needs its `value` only for row tensors not listed.
        all_listed = all(name in listed_tensors for name in rows)
        if not (all_listed and top == {"regime": "constant"}):
            missing = next((name for name in rows if name not in listed_tensors), None)
            if top == {"regime": "constant"} and listed_tensors and missing is not None:
                raise FieldError(
                    fields.join(path, missing),
                    None,
                    "the regime constant needs it (or `value` for all)",
                )
            name = top.get("regime", "uniform")
            if isinstance(name, str) and name in PARAMETERS:
                fields.known(top, ("regime", *PARAMETERS[name], *tensors), path)
            regime = parse_regime(top, columns[first], path)
            regimes = dict.fromkeys(rows, regime)
    for name, value in listed_tensors.items():
        regimes[name] = parse_regime(value, columns[name], fields.join(path, name))
    resolved = {name: regimes.get(name, default(name, rows)) for name in tensors}
    result: dict[str, Any] = {}
    if resolved[first] != DEFAULT_ROWS:
        result = resolved[first].to_json()
    for name in tensors:
        expected = resolved[first] if name in rows else DEFAULT_VECTOR
        if resolved[name] != expected:
            result[name] = resolved[name].to_json()
    return result


def is_exact(inputs: Mapping[str, Any]) -> bool:
    """Return whether the canonical form of a test's `inputs` is the regime `exact`."""
    return inputs.get("regime") == EXACT


def check_exact(
    inputs: Mapping[str, Any],
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
    if not is_exact(inputs):
        return
    if kernel not in EXACT_KERNELS:
        where = fields.join(fields.join(path, "inputs"), "regime")
        reason = f"has no exact inputs for {kernel}"
        raise FieldError(where, EXACT, reason, limit=", ".join(EXACT_KERNELS))
    exact = {"accumulate": ("fp32",), "fidelity": ("hifi4",)}
    reasons = {
        "accumulate": "isn't exact: a 16-bit accumulator loses bits after 256 steps",
        "fidelity": "isn't exact: its products lose bits",
    }
    for name, value in formats.items():
        allowed = exact.get(name, EXACT_FORMATS)
        if value not in allowed:
            where = fields.join(fields.join(path, "numerics"), name)
            reason = reasons.get(name, "isn't exact: values share an exponent")
            raise FieldError(where, value, reason, limit=", ".join(allowed))
    if features > MAX_EXACT_FEATURES:
        reason = "is too long for exact sums in fp32"
        limit = f"N <= {MAX_EXACT_FEATURES} with exact inputs"
        raise FieldError(fields.join(path, "shape"), features, reason, limit=limit)
    least, most = EXACT_EPSILON
    if "fp16" in formats.values():
        most = MAX_EXACT_EPSILON_FP16
    fields.number(epsilon, fields.join(path, "epsilon"), least=least, most=most)


def check_exact_executor(
    inputs: Mapping[str, Any], executor: str, kernel: str, features: int, path: str
) -> None:
    """Check that an executor can be exact at N = features, where the regime is `exact`.

    Raises FieldError.
    """
    if not is_exact(inputs) or executor not in ON_WORMHOLE:
        return
    if features & (features - 1):
        reason = f"isn't exact on {executor}, which multiplies by 1/N truncated to bf16"
        limit = "N = a power of two with exact inputs"
        raise FieldError(fields.join(path, "shape"), features, reason, limit=limit)
    if kernel.endswith("_bw") and features > MAX_TRUNCATED_GRADIENT:
        reason = f"isn't exact on {executor}, which reads 11 bits of partial sums"
        limit = f"N <= {MAX_TRUNCATED_GRADIENT} with exact inputs of a gradient"
        raise FieldError(fields.join(path, "shape"), features, reason, limit=limit)


def of_tensor(
    inputs: Mapping[str, Any], tensor: str, *, rows: Sequence[str] = ROW_TENSORS
) -> Regime:
    """Return the regime of one tensor, read from the canonical form."""
    if is_exact(inputs):
        return _regime(EXACT)
    if tensor in inputs:
        data = inputs[tensor]
    elif tensor in rows and "regime" in inputs:
        data = {name: value for name, value in inputs.items() if not isinstance(value, Mapping)}
    else:
        return default(tensor, rows)
    return Regime(
        data["regime"],
        tuple((parameter, data[parameter]) for parameter in PARAMETERS[data["regime"]]),
    )
