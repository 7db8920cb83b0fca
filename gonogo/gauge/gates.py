"""The gates of public test suites, from the table in gates.toml: how each judges the same runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gonogo import fields
from gonogo.spec.tolerances import Tolerance, for_output

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

FORMATS = ("fp32", "bf16", "fp16")
"""The output formats that public suites have."""


@dataclass(frozen=True)
class Gate:
    """A gate that a public suite uses, and where it does; gates.toml explains the fields."""

    name: str
    sentence: str
    source: str
    outputs: tuple[str, ...] = ("y", "mean", "rstd", "dx", "dgamma", "dbeta")
    kernels: tuple[str, ...] = ()
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    def tolerance_for(self, output: str) -> Tolerance | None:
        """Return the declared tolerance of an output; None where the gate needs the arrays."""
        return for_output(self.tolerance, output) if output in self.outputs else None

    def limits_in(self, output_format: str) -> Mapping[str, float]:
        """Return rtol, atol and guard, or ulp, for outputs in this format."""
        limits: Mapping[str, float] = self.limits.get(output_format, self.limits)
        return limits

    def judges(self, kernel: str, output_format: str) -> bool:
        """Return whether the gate judges this kernel with outputs in this format."""
        is_format = bool(self.tolerance) or output_format in FORMATS
        return is_format and (not self.kernels or kernel in self.kernels)

    def limit_in(self, output_format: str) -> str:
        """Return the limit of outputs in this format in words."""
        limits: Mapping[str, Any] = self.tolerance or self.limits_in(output_format)
        if "guard" in limits:
            return f"atol {limits['atol']:g} or rtol {limits['rtol']:g}, whichever is wider"
        if limits == {"ulp": 0}:
            return "equal to the bit"
        if any(isinstance(value, Mapping) for value in limits.values()):
            return "; ".join(f"{name}: {_words(one)}" for name, one in limits.items())
        return _words(limits)


def _words(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in limits.items())


def _gate(name: str, entry: Mapping[str, Any]) -> Gate:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return Gate(name, **given)


_TABLE = tomllib.loads(files("gonogo.gauge").joinpath("gates.toml").read_text("utf-8"))
GATES: Mapping[str, Gate] = {name: _gate(name, entry) for name, entry in _TABLE.items()}
"""Every gate by name."""

_DECLARED = [gate.tolerance_for(name) for gate in GATES.values() for name in gate.outputs]
RTOLS = tuple(sorted({one.rtol for one in _DECLARED if one and one.rtol is not None}))
"""The rtols at which a row must be stored, so that every declared tolerance can be judged."""


def named(names: Sequence[str], path: str = "gates") -> tuple[Gate, ...]:
    """Return the gates of these names; none given: every gate.

    Raises FieldError for an unknown name and for a name given twice.
    """
    for place, name in enumerate(names):
        fields.choice(name, GATES, fields.join(path, place), "unknown gate")
    fields.check_distinct(names, path)
    return tuple(GATES[name] for name in names or GATES)


def judging(test: TestSpec, names: Sequence[str] = ()) -> tuple[Gate, ...]:
    """Return the gates that judge a test's kernel and format, of these names or of all.

    Raises FieldError as `named` does.
    """
    form = test.numerics.output
    return tuple(gate for gate in named(names) if gate.judges(test.kernel, form))
