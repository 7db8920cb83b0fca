"""The outputs of a seed as one compact value: a layout, its numbers and the rest.

A layout says which output has which statistics, in which order and form. It is stored once
(`seed_layouts`), under a hash of its content, because most seeds share it. A seed then has only

- `numbers`: verdicts and explanations as codes, digests, and the floats in the layout's order.
  Those in EXACT are float64. The others, of which nothing reads more, are float32 and read as
  seven digits. An output with a number beyond float32's range has only float64.
- `rest`: the other values, as a JSON list in the layout's order.

Statistics that rarely differ between seeds are in the layout itself. Seeds with the results of
existing tests, of which there may be thousands, have no layout: `rest` is a JSON object.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from gonogo.spec import unseen_terms
from gonogo.spec.arithmetic_words import OTHERS
from gonogo_storage.db.columns import EXPLANATIONS, VERDICTS
from gonogo_storage.db.encoding import decode, encode, separate

COLUMNS = (
    "tolerance_ratio",
    "budget_ratio",
    "chi",
    "max_abs",
    "rms",
    "pcc_deficit",
    "row_z",
    "xhat_z",
    "scale_z",
)
"""The statistics that every output has, if only as None."""
EXACT = frozenset({"tolerance_ratio", "budget_ratio", "rms", "pcc_deficit", "rel_frobenius"})
"""Statistics that a tolerance names, or that are sketched or summed: they stay float64, as do the
numbers within dictionaries, such as `needed_atol`."""
KINDS = "nonfinite_kinds"
MAX_OUTPUTS = 16
"""Seeds with more outputs have no layout."""
_CONSTANT = frozenset(
    {unseen_terms.NAME, "detection_limits", "arithmetic", "nearest_arithmetic", OTHERS}
)
"""Statistics that are in the layout, besides the counts."""
HEAD, TAIL = ("verdict", "explanation"), ("outcome", "digest", KINDS)
_VERDICT_CODES = {name: code for code, name in enumerate(VERDICTS)}
OUTPUT_EXPLANATIONS = (None, *EXPLANATIONS)
_EXPLANATION_CODES = {name: code for code, name in enumerate(OUTPUT_EXPLANATIONS)}
_SMALLEST, _LARGEST = 2.0**-126, 3.4e38
DIGITS = 16
_SINGLE_NUMBER = struct.Struct("<f")
DOUBLE, SINGLE, NESTED, DIGEST, OTHER, FIXED = "d", "f", "n", "x", "j", "c"
MAX_LAYOUTS = 4096

Output = Mapping[str, Any]
Entry = tuple[str, str, Any]
"""A statistic's name, its form, and what belongs to it: names within it, or its value."""


@dataclass(frozen=True)
class Layout:
    """The outputs of a seed, each with its entries, as (name, entries)."""

    id: int
    outputs: Sequence[tuple[str, Sequence[Entry]]]
    numbers: struct.Struct

    @staticmethod
    def of(outputs: Sequence[Any]) -> Layout:
        """Return the layout with this content, as it is stored."""
        forms = [form for _, entries in outputs for form in map(itemgetter(1), entries)]
        nested = sum(len(d) for _, entries in outputs for _, form, d in entries if form == NESTED)
        format_ = (
            f"<{2 * len(outputs)}B{forms.count(DIGEST)}Q{forms.count(DOUBLE) + nested}d"
            f"{forms.count(SINGLE)}f"
        )
        content = hashlib.sha256(encode(outputs).encode()).digest()
        return Layout(
            int.from_bytes(content[:8], "big") >> 1,
            [(name, [(*entry,) for entry in entries]) for name, entries in outputs],
            struct.Struct(format_),
        )


@dataclass(frozen=True)
class Packed:
    """A seed's outputs as they are stored; `layout` is None where there are none, or too many."""

    layout: Layout | None = None
    numbers: bytes | None = None
    rest: str | None = None


@dataclass(frozen=True, eq=False)
class _Plan:
    """How outputs with the same statistics, of the same types, are packed.

    Each function returns an output's values of one form, in the order of the entries.
    """

    names: tuple[str, ...]
    """The statistics that the outputs have."""
    types: tuple[type, ...]
    """Their types."""
    inner: Sequence[tuple[str, tuple[str, ...]]]
    """The dictionaries among them, with the names in each."""
    entries: tuple[Entry, ...]
    doubles: Callable[[Output], Sequence[float | None]]
    singles: Callable[[Output], Sequence[float]]
    nested: Sequence[str]
    others: Callable[[Output], Sequence[Any]]
    constants: Callable[[Output], Sequence[Any]]
    digest: bool

    def large(self, output: Output) -> list[float | None]:
        """Return the numbers for float64."""
        large = [*self.doubles(output)]
        for name in self.nested:
            large += output[name].values()
        return large

    def fits(self, output: Output, small: Sequence[float], large: Sequence[float | None]) -> bool:
        """Return whether its numbers for float32 and float64, and its digest, have that form."""
        sizes = [*map(abs, filter(None, small))]
        # a sum with NaN or Inf isn't smaller than anything
        if sizes and not (min(sizes) >= _SMALLEST and sum(sizes) < _LARGEST):
            return False
        if not math.isfinite(sum(filter(None, large))):
            return False
        if self.digest:
            digest = output["digest"]
            return len(digest) == DIGITS and not digest.strip("0123456789abcdef")
        return True


@dataclass(frozen=True, eq=False)
class _Shape:
    """An output's plan, and the values of its constants."""

    output: str
    plan: _Plan
    constants: Sequence[Any]


_recent: dict[str, _Shape] = {}
"""The shape of each output that was packed last: nearly always that of the next seed, too."""


def pack(outputs: Mapping[str, Output]) -> Packed:
    """Return the outputs of a seed as they are stored."""
    if not outputs:
        return Packed()
    if len(outputs) > MAX_OUTPUTS or any("outcome" in output for output in outputs.values()):
        return Packed(rest=encode({name: finite(output) for name, output in outputs.items()}))
    codes: list[int] = []
    digests: list[int] = []
    doubles: list[float] = []
    singles: list[float] = []
    rest: list[Any] = []
    shapes: list[_Shape] = []
    for name in sorted(outputs):
        output = outputs[name]
        plan = _planned(name, output)
        small, large = plan.singles(output), plan.large(output)
        if not plan.fits(output, small, large):
            output = finite(output)
            plan = _plan_of(output)
            small, large = plan.singles(output), plan.large(output)
            if not plan.fits(output, small, large):
                plan = _plan_of(output, narrow=False)
                small, large = plan.singles(output), plan.large(output)
        codes.append(_VERDICT_CODES[output["verdict"]])
        codes.append(_EXPLANATION_CODES[output.get("explanation")])
        if plan.digest:
            digests.append(int(output["digest"], 16))
        doubles += [math.nan if value is None else value for value in large]
        singles += small
        rest += plan.others(output)
        shapes.append(_shape(name, plan, output))
    layout = _layout(tuple(shapes))
    return Packed(layout, layout.numbers.pack(*codes, *digests, *doubles, *singles), encode(rest))


def _planned(name: str, output: Output) -> _Plan:
    recent = _recent.get(name)
    if recent is not None:
        plan = recent.plan
        if (
            tuple(output) == plan.names
            and tuple(map(type, output.values())) == plan.types
            and all(tuple(output[n]) == inner for n, inner in plan.inner)
            and all(set(map(type, output[n].values())) == {float} for n in plan.nested)
        ):
            return plan
    return _plan_of(output)


def _plan_of(output: Output, *, narrow: bool = True) -> _Plan:
    dictionaries = [name for name, value in output.items() if type(value) is dict]
    inner = tuple((name, tuple(output[name])) for name in dictionaries)
    numbers = tuple(n for n in dictionaries if set(map(type, output[n].values())) == {float})
    return _plan(tuple(output), tuple(map(type, output.values())), inner, numbers, narrow)


def _shape(name: str, plan: _Plan, output: Output) -> _Shape:
    constants = plan.constants(output)
    shape = _recent.get(name)
    if shape is None or shape.plan is not plan or shape.constants != constants:
        shape = _recent[name] = _known_shape(name, plan, encode(constants))
    return shape


@lru_cache(maxsize=MAX_LAYOUTS)
def _known_shape(name: str, plan: _Plan, constants: str) -> _Shape:
    return _Shape(name, plan, tuple(decode(constants)))


def seven_digits(value: float) -> float:
    """Return the decimal number with seven digits that a float32 stands for."""
    return float("%.7g" % value)  # noqa: UP031 (an f-string takes twice as long)


def stored_number(name: str, value: float) -> float:
    """Return a finite statistic as it is read after storing."""
    if name in EXACT or not _SMALLEST <= abs(value) <= _LARGEST:
        return value
    return seven_digits(_SINGLE_NUMBER.unpack(_SINGLE_NUMBER.pack(value))[0])


def finite(output: Output) -> Output:
    """Return an output with None for numbers that aren't finite, and their kinds."""
    values, kinds = separate(dict(output))
    return {**values, KINDS: {**(output.get(KINDS) or {}), **kinds} or None} if kinds else output


@lru_cache(maxsize=1024)
def _plan(
    names: tuple[str, ...],
    types: tuple[type, ...],
    inner: tuple[tuple[str, tuple[str, ...]], ...],
    numbers: tuple[str, ...],
    narrow: bool,
) -> _Plan:
    """Return the plan of outputs with these names and types.

    inner: the names in each of their dictionaries. numbers: the dictionaries of floats. narrow:
    with float32, nested numbers and binary digests; otherwise all floats are float64, and the
    others are JSON.
    """
    type_of = dict(zip(names, types, strict=True))
    ordered = [*COLUMNS, *(n for n in names if n not in {*COLUMNS, *HEAD, *TAIL}), *TAIL[1:]]
    entries: list[Entry] = []
    for name in ordered:
        kind = type_of.get(name, type(None))
        form, detail = OTHER, None
        if kind is float or (name in type_of and kind is type(None) and name in EXACT):
            form = SINGLE if narrow and name not in EXACT else DOUBLE
        elif kind is type(None):
            form = FIXED
        elif name == "digest" and narrow:
            form = DIGEST
        elif name in _CONSTANT or (kind is int and name.endswith("count")):
            form = FIXED
        elif name in numbers and narrow:
            form, detail = NESTED, dict(inner)[name]
        entries.append((name, form, detail))
    # of a statistic that the outputs don't have, the entry's own None is the value
    fixed = [entry for entry in entries if entry[0] in type_of]
    return _Plan(
        names,
        types,
        inner,
        tuple(entries),
        _getter(entries, DOUBLE),
        _getter(entries, SINGLE),
        [name for name, form, _ in entries if form == NESTED],
        _getter(entries, OTHER),
        _getter(fixed, FIXED),
        any(form == DIGEST for _, form, _ in entries),
    )


def _getter(entries: Sequence[Entry], form: str) -> Callable[[Output], Sequence[Any]]:
    names = [name for name, entry_form, _ in entries if entry_form == form]
    if len(names) < 2:  # of one name, itemgetter returns the value itself
        return lambda output: tuple(output[name] for name in names)
    return itemgetter(*names)


@lru_cache(maxsize=MAX_LAYOUTS)
def _layout(shapes: tuple[_Shape, ...]) -> Layout:
    outputs = []
    for shape in shapes:
        values = iter(shape.constants)
        entries = [
            [n, form, next(values) if form == FIXED and n in shape.plan.names else detail]
            for n, form, detail in shape.plan.entries
        ]
        outputs.append([shape.output, entries])
    return Layout.of(outputs)
