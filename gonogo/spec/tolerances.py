"""Declared tolerances: the comparators of a user's own gate, for all outputs or per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields

COMPARATORS = ("rtol", "atol", "pcc", "frobenius", "ulp")


@dataclass(frozen=True)
class Tolerance:
    """The comparators declared for an output; None = not declared.

    An output is *within* if every declared comparator holds.

    rtol and atol are one comparator, |e| <= atol + rtol |ref|: both are set or neither is. pcc is
    the smallest PCC, frobenius the largest |e| / |ref| (2-norms), ulp the largest distance in units
    in the last place of the output format.
    """

    rtol: float | None = None
    atol: float | None = None
    pcc: float | None = None
    frobenius: float | None = None
    ulp: float | None = None

    @classmethod
    def parse(cls, data: object, path: str = "tolerance") -> Tolerance:
        """Parse a JSON object. If only one of rtol and atol is given, the other is 0.

        Raises FieldError.
        """
        given = fields.mapping(data, path)
        fields.known(given, COMPARATORS, path)
        values: dict[str, float] = {}
        for name in COMPARATORS:
            if given.get(name) is not None:
                low, high = (-1.0, 1.0) if name == "pcc" else (0.0, None)
                values[name] = fields.number(
                    given[name], fields.join(path, name), least=low, most=high
                )
        if "rtol" in values or "atol" in values:
            values = {"rtol": 0.0, "atol": 0.0} | values
        return cls(**values)

    @property
    def allclose(self) -> tuple[float, float] | None:
        """Return (rtol, atol), or None when not declared."""
        if self.rtol is None and self.atol is None:
            return None
        return (self.rtol or 0.0, self.atol or 0.0)

    @property
    def declared(self) -> bool:
        """Return whether any comparator is declared."""
        return any(getattr(self, name) is not None for name in COMPARATORS)

    def to_json(self) -> dict[str, float]:
        """Return the declared comparators."""
        return {name: value for name in COMPARATORS if (value := getattr(self, name)) is not None}


def normalize(data: object, outputs: Sequence[str], path: str) -> dict[str, Any]:
    """Return the canonical form: {} (none), one object for all outputs, or a map output -> object.

    A map that says the same for every output becomes that one object; an output with an empty
    object is undeclared. Raises FieldError for an unknown output or comparator and for a value that
    isn't a tolerance (NaN, negative).
    """
    if data is None:
        return {}
    given = fields.mapping(data, path)
    if not any(name in outputs or isinstance(value, Mapping) for name, value in given.items()):
        if unknown := [name for name in given if name not in COMPARATORS]:
            raise FieldError(
                fields.join(path, unknown[0]),
                unknown[0],
                "unknown field",
                limit="one of " + ", ".join((*COMPARATORS, *outputs)),
            )
        return Tolerance.parse(given, path).to_json()
    fields.known(given, outputs, path)
    by_output = {
        name: Tolerance.parse(given[name], fields.join(path, name)).to_json()
        for name in outputs
        if name in given
    }
    by_output = {name: value for name, value in by_output.items() if value}
    if len(by_output) == len(outputs) and all(
        value == by_output[outputs[0]] for value in by_output.values()
    ):
        return by_output[outputs[0]]
    return dict(by_output)


def for_output(tolerance: Mapping[str, Any], output: str) -> Tolerance | None:
    """Return the tolerance of one output, read from the canonical form; None when undeclared."""
    if not tolerance:
        return None
    if any(name in COMPARATORS for name in tolerance):
        return Tolerance(**tolerance)
    return Tolerance(**tolerance[output]) if output in tolerance else None
