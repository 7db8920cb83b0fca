"""Input regimes: what distribution each tensor of a test is drawn from, as data with one canonical
form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields

TILE = 32
"""Columns of a tile."""

_LARGEST = 3.3895313892515355e38
"""The largest bf16: beyond it bf16 inputs would be infinite."""

_MOST_DEVIATIONS = 7
"""No normal deviate that is ever drawn is larger (2**-33 is at 6.3)."""

PARAMETERS: Mapping[str, Mapping[str, float | None]] = {
    "uniform": {"low": -1.0, "high": 1.0},
    "normal": {"mean": 0.0, "std": 1.0},
    "constant": {"value": None},
    "offset": {"offset": None, "std": 1.0},
    "hot_tile": {"tile": None, "value": None},
    "ramp": {"low": -1.0, "high": 1.0},
}
"""regime -> its parameters with their defaults; None = must be given."""

ROW_TENSORS = ("x", "dy")
"""Drawn for every row, from the test's own regime; the others are one row (gamma, beta) with a
regime of their own. Of a kernel with other names for them the kernel says which."""


@dataclass(frozen=True)
class Regime:
    """One tensor's distribution.

    uniform: U[low, high). normal: mean + std z. constant: value. offset: offset + std z (a large
    common part with a small noise). hot_tile: U[-1, 1) but `value` in the 32 columns of tile
    `tile`, counted from 0. ramp: from low (first column) to high (last column) in equal steps, the
    same in every row.
    """

    name: str
    parameters: tuple[tuple[str, float], ...]

    def __getitem__(self, parameter: str) -> float:
        return dict(self.parameters)[parameter]

    def to_json(self) -> dict[str, Any]:
        """{"regime": name, parameters in full}; the tile is an int."""
        return {
            "regime": self.name,
            **{name: int(value) if name == "tile" else value for name, value in self.parameters},
        }


def _regime(name: str, **parameters: float) -> Regime:
    return Regime(name, tuple((each, parameters[each]) for each in PARAMETERS[name]))


DEFAULT_ROWS = _regime("uniform", low=-1.0, high=1.0)
DEFAULT_VECTOR = _regime("uniform", low=0.0, high=1.0)


def default(tensor: str, rows: Sequence[str] = ROW_TENSORS) -> Regime:
    """U[-1, 1) for x and dy, U[0, 1) for gamma and beta."""
    return DEFAULT_ROWS if tensor in rows else DEFAULT_VECTOR


def parse_regime(data: object, features: int, path: str) -> Regime:
    """A regime object, or a number, which is short for a constant. Raises FieldError."""
    if isinstance(data, int | float) and not isinstance(data, bool):
        data = {"regime": "constant", "value": data}
    given = fields.mapping(data, path)
    name = fields.choice(
        given.get("regime", "uniform"), tuple(PARAMETERS), fields.join(path, "regime")
    )
    wanted = PARAMETERS[name]
    fields.known(given, ("regime", *wanted), path)
    values: dict[str, float] = {}
    for parameter, otherwise in wanted.items():
        where = fields.join(path, parameter)
        if parameter not in given and otherwise is None:
            raise FieldError(where, None, f"the regime {name} needs it")
        value = given.get(parameter, otherwise)
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
        room = (_LARGEST - abs(values.get("mean", values.get("offset", 0.0)))) / _MOST_DEVIATIONS
        fields.number(values["std"], fields.join(path, "std"), most=room)
    return _regime(name, **values)


def normalise(
    data: object,
    tensors: Sequence[str],
    features: int | Mapping[str, int],
    path: str,
    *,
    rows: Sequence[str] = ROW_TENSORS,
) -> dict[str, Any]:
    """The one canonical form of a test's `inputs`: {} when all is default.

    `tensors` are those that are drawn (x, dy, gamma, beta as far as the kernel has them),
    `features` their columns, `rows` those with a value for every element. The regime at the top is
    x's (and dy's unless dy is listed); gamma and beta are listed where they aren't U[0, 1). Regimes
    are written in full. Accepts a regime for x and dy at the top, an object (or a number, a
    constant) per tensor beside or instead of it, and the short form {"regime": "constant", "x": .5,
    "dy": 1, "gamma": 1}. Raises FieldError.
    """
    if data is None:
        return {}
    given = fields.mapping(data, path)
    own = {name: given[name] for name in given if name in tensors}
    top = {name: value for name, value in given.items() if name not in own}
    found: dict[str, Regime] = {}
    rows = [name for name in rows if name in tensors]
    columns = {name: features if isinstance(features, int) else features[name] for name in tensors}
    first = rows[0]  # x: its regime is the one at the top
    if top:
        # The short form leaves nothing for the top regime to say: its `value` is needed only for a
        # row tensor not listed.
        listed = all(name in own for name in rows)
        if not (listed and top == {"regime": "constant"}):
            missing = next((name for name in rows if name not in own), None)
            if top == {"regime": "constant"} and own and missing is not None:
                raise FieldError(
                    fields.join(path, missing),
                    None,
                    "the regime constant needs it (or `value` for all)",
                )
            name = top.get("regime", "uniform")
            if isinstance(name, str) and name in PARAMETERS:
                fields.known(top, ("regime", *PARAMETERS[name], *tensors), path)
            regime = parse_regime(top, columns[first], path)
            found = dict.fromkeys(rows, regime)
    for name, value in own.items():
        found[name] = parse_regime(value, columns[name], fields.join(path, name))
    resolved = {name: found.get(name, default(name, rows)) for name in tensors}
    result: dict[str, Any] = {}
    if resolved[first] != DEFAULT_ROWS:
        result = resolved[first].to_json()
    for name in tensors:
        otherwise = resolved[first] if name in rows else DEFAULT_VECTOR
        if resolved[name] != otherwise:
            result[name] = resolved[name].to_json()
    return result


def of_tensor(
    inputs: Mapping[str, Any], tensor: str, *, rows: Sequence[str] = ROW_TENSORS
) -> Regime:
    """The regime of one tensor, read from the canonical form."""
    if tensor in inputs:
        data = inputs[tensor]
    elif tensor in rows and "regime" in inputs:
        data = {name: value for name, value in inputs.items() if not isinstance(value, Mapping)}
    else:
        return default(tensor, rows)
    return Regime(data["regime"], tuple((each, data[each]) for each in PARAMETERS[data["regime"]]))
