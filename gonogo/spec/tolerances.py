"""Declared tolerances: the comparators of a user's own gate, for all outputs or per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from gonogo import fields
from gonogo.spec.validation import NO_MINUS_ZERO, Bounded, Model

COMPARATORS = ("rtol", "atol", "pcc", "frobenius", "ulp")
Size = Annotated[float, Field(ge=0.0), NO_MINUS_ZERO]


class Tolerance(Model):
    """The comparators declared for an output; None = not declared.

    An output is *within* if every declared comparator holds. rtol and atol are one comparator: if
    only one of them is given, the other is 0.
    """

    rtol: Size | None = Field(None, description="Relative part of |error| <= atol + rtol |ref|")
    atol: Size | None = Field(None, description="Absolute part of |error| <= atol + rtol |ref|")
    pcc: Annotated[float, Field(ge=-1.0, le=1.0), NO_MINUS_ZERO] | None = Field(
        None, description="Smallest Pearson correlation"
    )
    frobenius: Size | None = Field(None, description="Largest |error| / |reference| (2-norms)")
    ulp: Size | None = Field(
        None, description="Largest distance in units in the last place of the output's format"
    )

    def _normalize(self) -> None:
        if self.rtol is not None or self.atol is not None:
            self.__dict__.update(rtol=self.rtol or 0.0, atol=self.atol or 0.0)

    @property
    def allclose(self) -> tuple[float, float] | None:
        """Return (rtol, atol), or None when not declared."""
        return None if self.rtol is None or self.atol is None else (self.rtol, self.atol)

    def __bool__(self) -> bool:
        """Return whether any comparator is declared."""
        return any(getattr(self, name) is not None for name in COMPARATORS)

    def to_json(self) -> dict[str, float]:
        """Return the declared comparators in their order, whatever the order of the input was."""
        return {name: value for name in COMPARATORS if (value := getattr(self, name)) is not None}


def _kind(value: object) -> str:
    members = value.values() if isinstance(value, Mapping) else ()
    by_output = any(isinstance(item, Mapping | Tolerance) for item in members)
    return "<by output>" if by_output else "<Tolerance>"


AnyTolerance = Annotated[
    Annotated[Tolerance, Tag("<Tolerance>")]
    | Annotated[dict[str, Tolerance], Bounded, Tag("<by output>")],
    Discriminator(_kind),
]
"""The comparators of all outputs, or a map output -> comparators."""


def normalize(tolerance: Tolerance | Mapping[str, Tolerance], outputs: Sequence[str]) -> Any:
    """Return the canonical form: comparators for all outputs, or a map output -> comparators.

    A map that says the same for every output becomes those comparators; an output without a
    comparator is undeclared. Raises FieldError below "tolerance" for an unknown output.
    """
    if isinstance(tolerance, Tolerance):
        return tolerance
    fields.known(tolerance, outputs, "tolerance")
    declared = {name: tolerance[name] for name in outputs if tolerance.get(name)}
    if not declared:
        return Tolerance()
    if len(declared) == len(outputs) and len(set(declared.values())) == 1:
        return declared[outputs[0]]
    return declared


def check_names(given: Mapping[str, Any], outputs: Sequence[str]) -> None:
    """Check the names in a tolerance: of comparators, or of the kernel's outputs.

    Raises FieldError with the path of the member.
    """
    by_output = any(name in outputs or isinstance(value, Mapping) for name, value in given.items())
    fields.known(given, outputs if by_output else (*COMPARATORS, *outputs), "")
    for name, value in given.items():
        if by_output and not isinstance(value, Tolerance):
            fields.mapping(value, name)


def declared_for(tolerance: Tolerance | Mapping[str, Tolerance], output: str) -> Tolerance | None:
    """Return the comparators of one output of a canonical tolerance; None when undeclared."""
    declared = tolerance if isinstance(tolerance, Tolerance) else tolerance.get(output)
    return declared or None


def to_json(tolerance: Tolerance | Mapping[str, Tolerance]) -> dict[str, Any]:
    """Return a canonical tolerance in plain JSON types; {} when nothing is declared."""
    if isinstance(tolerance, Tolerance):
        return tolerance.to_json()
    return {name: declared.to_json() for name, declared in tolerance.items()}


def for_output(tolerance: Mapping[str, Any], output: str) -> Tolerance | None:
    """Return the tolerance of one output, read from the canonical form; None when undeclared."""
    by_output = not any(name in COMPARATORS for name in tolerance)
    return Tolerance.parse(tolerance.get(output, {}) if by_output else tolerance) or None
