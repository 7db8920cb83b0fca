"""Arithmetic models by name: the budget of a Wormhole's dataflow, or the programs of any kernel.

A name is one of BUDGETS, or a list of programs, separated by "; ". Every program is permitted for
the output before it ("dx: bf16: P stored"), else for all outputs. What an output doesn't have, such
as the column sums of y, is ignored there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gonogo.errors import FieldError
from gonogo.numerics.replay.program import (
    CANCELLED,
    QUANTITIES,
    ROUNDINGS,
    WELFORD,
    ColumnOrder,
    Order,
    along_rows,
)
from gonogo.spec import fields
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.program_name import COLUMN_SUMS, NOTHING_STORED, ROW_SUMS, ProgramName

BUDGETS = ("generic", "tt-train", "ttnn")
"""Arithmetic models of a Wormhole, whose order of operations is known only roughly: their ruler is
a budget. One dataflow's budget must not judge another's kernel."""
FP32_BUDGET = "fp32"
"""The budget of a kernel that stores nothing: the gauge's, and that of what can't be replayed."""
EITHER = "16-bit"
"""Stands for the 16-bit formats of a test's tensors; where it has none, nothing is stored."""
FORMATS = ("bf16", "fp16", EITHER)
ROUNDED = tuple(
    f"{what}{words}"
    for what in ("", "output ")
    for mode, words in ROUNDINGS.items()
    if mode != "even" and (what or mode != "random")  # what is stored at random isn't replayed
)
VARIANCES = {f"variance by {WELFORD}": WELFORD, f"variance as {CANCELLED}": CANCELLED}
"""How a name says the variance that isn't the mean of (x - mean)^2."""
TRAITS = (*ROUNDED, *VARIANCES, Order.running.value, Order.running_mean.value)
"""The parts of a program's name about roundings and the sums along a row, in their order."""
_ORDERS = tuple(order for order in ColumnOrder if order is not ColumnOrder.blocked)
SUM_ORDERS: Mapping[str, tuple[str, ...]] = {
    COLUMN_SUMS: tuple(order.value for order in _ORDERS),
    ROW_SUMS: tuple(along_rows(order) for order in _ORDERS if order is not ColumnOrder.unordered),
}
"""Sums whose total is stored after each addition, as a name has them -> their orders."""
_ROWS = "column sums: rows in order"
_FP32 = "; ".join(
    f"{NOTHING_STORED}{trait}" for trait in ("", f", {_ROWS}", f", variance by {WELFORD}")
)
_SAVED = "; ".join(  # autograd on a CPU saves mean and rstd in gamma's format
    f"{output}: {EITHER}: mean, rstd stored" for output in ("dx", "dgamma")
)
ALIASES: Mapping[str, str] = {
    # the former budget held for any order of sums
    "fp32": "; ".join(
        f"{NOTHING_STORED}{trait}{columns}"
        for trait in ("", *(f", {trait}" for trait in TRAITS[len(ROUNDED) :]))
        for columns in ("", f", {_ROWS}")
    ),
    "torch": f"{_FP32}; {_SAVED}; dgamma: {EITHER}: mean, rstd stored, {_ROWS}",
    # ATen's LayerNorm on a CPU adds up the rows in a 16-bit buffer (docs/arithmetic.md)
    "torch-eager": (
        f"{_FP32}; {EITHER}: column sum stored, {_ROWS}; {_SAVED};"
        f" dgamma: {EITHER}: mean, rstd, column sum stored, {_ROWS}"
    ),
}
"""Former names of budgets -> the programs that they stand for."""
EXAMPLES = (NOTHING_STORED, "bf16: x^, gamma x^ stored")
ALLOWED = (
    f"one of {', '.join((*BUDGETS, *ALIASES))}, or programs such as"
    f" {' and '.join(map(repr, EXAMPLES))} (manual: verdicts)"
)
MAX_CHARS = 2000
MAX_PROGRAMS = 16
_OUTPUT = re.compile(r"(?P<output>[\w-]+): (?P<program>.*)")


@dataclass(frozen=True)
class PermittedProgram:
    """A program that may explain an output; None stands for all outputs."""

    output: str | None
    program: ProgramName

    @property
    def name(self) -> str:
        """Return the program's name behind the output's."""
        return f"{self.output}: {self.program.name}" if self.output else self.program.name


@dataclass(frozen=True)
class NamedArithmetic:
    """The arithmetic model that somebody names.

    Attributes:
        wormhole: the name of a Wormhole's budget; None for programs.
        programs: the permitted programs, as they are listed; empty for a budget.
    """

    wormhole: str | None
    programs: tuple[PermittedProgram, ...] = ()

    @classmethod
    def parse(cls, value: object, path: str = "arithmetic") -> NamedArithmetic:
        """Parse a name. Raises FieldError for an unknown model or an unknown part of its name."""
        if not isinstance(value, str) or not 0 < len(value.strip()) <= MAX_CHARS:
            raise FieldError(path, value, "must be an arithmetic model", limit=ALLOWED)
        text = value.strip()
        if text in BUDGETS:
            return cls(text)
        entries = [entry.strip() for entry in ALIASES.get(text, text).split(";") if entry.strip()]
        if len(entries) > MAX_PROGRAMS:
            raise FieldError(path, value, "lists too many programs", limit=f"{MAX_PROGRAMS}")
        programs = {entry.name: entry for entry in (_entry(text, path) for text in entries)}
        return cls(None, tuple(programs.values()))

    @property
    def name(self) -> str:
        """Return the canonical spelling."""
        return self.wormhole or "; ".join(entry.name for entry in self.programs)

    @property
    def budget(self) -> str | None:
        """Return the budget that a right kernel of this model keeps; None: the generic one."""
        stores = any(entry.program.stored for entry in self.programs)
        return self.wormhole or (None if stores else FP32_BUDGET)

    def permitted(self, output: str) -> tuple[ProgramName, ...]:
        """Return the programs that may explain an output; none: any that reproduces it."""
        return tuple(entry.program for entry in self.programs if entry.output in (None, output))


def canonical(value: object, path: str = "arithmetic") -> str | None:
    """Return the canonical spelling of a name; None stays None. Raises FieldError."""
    return None if value is None else NamedArithmetic.parse(value, path).name


def budget_of(name: str | None) -> str | None:
    """Return the name of the budget that bounds a model's error; None: the generic one."""
    return None if name is None else NamedArithmetic.parse(name).budget


def _entry(text: str, path: str) -> PermittedProgram:
    """Return one permitted program, such as "dx: bf16: P stored"."""
    match = _OUTPUT.fullmatch(text)
    if match is None or match["output"] in FORMATS:
        return PermittedProgram(None, _program(text, path))
    outputs = sorted({output for kind in KERNELS.values() for output in kind.outputs})
    if match["output"] not in outputs:
        names = (*outputs, *FORMATS)
        _refuse(path, text, "an output or a format", match["output"], names)
    return PermittedProgram(match["output"], _program(match["program"], path))


def _program(text: str, path: str) -> ProgramName:
    """Return the parts of a program's name, all of them known, in their fixed order."""
    name = ProgramName.parse(text)
    if name is None:
        known = (*BUDGETS, *ALIASES, *EXAMPLES)
        raise FieldError(
            path,
            text,
            "is not an arithmetic model" + fields.did_you_mean(text, known),
            limit=ALLOWED,
        )
    for quantity, form in name.stored.items():
        if form not in FORMATS:
            _refuse(path, text, "a format", form, FORMATS)
        if quantity not in QUANTITIES:
            _refuse(path, text, "a stored quantity", quantity, QUANTITIES)
    for trait in name.traits:
        sums = next((noun for noun in SUM_ORDERS if trait.startswith(noun)), None)
        if sums is not None:
            order = trait.removeprefix(sums)
            if order not in SUM_ORDERS[sums]:
                noun = f"an order of {sums.removesuffix(': ')}"
                _refuse(path, text, noun, order, SUM_ORDERS[sums])
        elif trait not in TRAITS:
            _refuse(path, text, "a trait", trait, (*TRAITS, *(f"{noun}..." for noun in SUM_ORDERS)))
    orders = [trait for trait in name.traits if trait in TRAITS[-2:]]
    if len(orders) > 1:
        raise FieldError(
            path, text, f"has {' and '.join(orders)}", limit="one order of the sums along a row"
        )
    places = {trait: place for place, trait in enumerate(TRAITS)}
    traits = sorted(dict.fromkeys(name.traits), key=lambda trait: places.get(trait, len(places)))
    return ProgramName(name.stored, tuple(traits))


def _refuse(path: str, text: str, noun: str, part: str, known: Sequence[str]) -> None:
    """Raise FieldError for an unknown part of a program's name."""
    raise FieldError(
        path,
        text,
        f"{part!r} is not {noun}{fields.did_you_mean(part, known)}",
        limit="one of " + ", ".join(known),
    )
