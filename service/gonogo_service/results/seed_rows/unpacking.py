"""The outputs of a stored seed, read from its compact form.

A reader names the statistics that it needs, because turning all of them into values takes longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.statistics import ROLLED_UP
from gonogo_service.kit.database.columns import VERDICTS
from gonogo_service.kit.database.encoding import decode
from gonogo_service.results.rows import SeedLayoutRow
from gonogo_service.results.seed_rows.layouts import (
    DIGEST,
    DIGITS,
    DOUBLE,
    FIXED,
    KINDS,
    MAX_LAYOUTS,
    NESTED,
    OTHER,
    OUTPUT_EXPLANATIONS,
    SINGLE,
    TAIL,
    Layout,
    seven_digits,
)

Outputs = dict[str, dict[str, Any]]
Names = frozenset[str] | None
"""The statistics to read, besides verdict and explanation; None: all."""
Values = tuple[Any, ...]
Readers = Sequence[tuple[str, Callable[[Values, Any], Any]]]
"""For each statistic the function from (numbers, rest) to its value."""
_OUTCOME = frozenset({"outcome"})
_layouts: dict[int, Layout] = {}
_older_layouts: dict[int, Layout] = {}
"""The layouts before the last MAX_LAYOUTS: another thread may be about to unpack one of them."""


def load(session: Session, ids: Iterable[int | None]) -> None:
    """Read layouts that this process doesn't know yet. They never change."""
    global _layouts, _older_layouts
    if len(_layouts) >= MAX_LAYOUTS:
        _layouts, _older_layouts = {}, _layouts
    missing = {layout for layout in ids if layout is not None} - _layouts.keys()
    for known in missing & _older_layouts.keys():
        _layouts[known] = _older_layouts[known]
    missing -= _layouts.keys()
    if missing:
        table = SeedLayoutRow
        for content in session.scalars(select(table.content).where(table.id.in_(missing))):
            layout = Layout.of(content)
            _layouts[layout.id] = layout


def _layout(layout: int) -> Layout:
    return _layouts.get(layout) or _older_layouts[layout]


def unpack(
    layout: int | None, numbers: bytes | None, rest: str | None, names: Names = None
) -> Outputs:
    """Return the outputs of a seed by name, each with its verdict, explanation and statistics.

    The layout is loaded. Statistics that an output doesn't have are left out, except ROLLED_UP.
    """
    if layout is None:
        return {} if rest is None else _plain(decode(rest), names)
    readers, needs_rest = _readers(layout, names)
    values = _layout(layout).numbers.unpack(numbers or b"")
    others = decode(rest or "[]") if needs_rest else ()
    return {
        name: _output(values, others, place, of_output)
        for place, (name, of_output) in enumerate(readers)
    }


def unpack_outcomes(
    layout: int | None, numbers: bytes | None, rest: str | None
) -> dict[str, tuple[str | None, str]]:
    """Return the (outcome, verdict) of each output of a seed by name, in any order.

    A selection may have 20,000 tests, of which a comparison needs no more.
    """
    if layout is None:
        outputs = {} if rest is None else decode(rest)
        return {name: (sent.get("outcome"), sent["verdict"]) for name, sent in outputs.items()}
    outputs = unpack(layout, numbers, rest, _OUTCOME)
    return {name: (output.get("outcome"), output["verdict"]) for name, output in outputs.items()}


def unpack_output(
    layout: int | None, numbers: bytes | None, rest: str | None, name: str, names: Names
) -> dict[str, Any] | None:
    """Return one output of a seed, as in `unpack`; None if the seed doesn't have it."""
    if layout is None:
        return unpack(layout, numbers, rest, names).get(name)
    readers, needs_rest = _readers(layout, names)
    for place, (output, of_output) in enumerate(readers):
        if output == name:
            values = _layout(layout).numbers.unpack(numbers or b"")
            others = decode(rest or "[]") if needs_rest else ()
            return _output(values, others, place, of_output)
    return None


def _output(values: Values, others: Any, place: int, readers: Readers) -> dict[str, Any]:
    return {
        "verdict": VERDICTS[values[2 * place]],
        "explanation": OUTPUT_EXPLANATIONS[values[2 * place + 1]],
        **{statistic: value(values, others) for statistic, value in readers},
    }


def statistics_of(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output without what every output has: verdict, ROLLED_UP, digest and the like."""
    left_out = {"verdict", "explanation", *ROLLED_UP, *TAIL}
    return {name: value for name, value in output.items() if name not in left_out}


def _plain(outputs: Outputs, names: Names) -> Outputs:
    usual = dict.fromkeys((*ROLLED_UP, "digest", KINDS))
    if names is None:
        return {
            name: {"verdict": sent["verdict"], "explanation": None, **usual, **sent}
            for name, sent in sorted(outputs.items())
        }
    head = {"verdict": None, "explanation": None, **{n: None for n in usual if n in names}}
    return {
        name: head | {n: value for n, value in sent.items() if _is_among(names, n) or n in head}
        for name, sent in sorted(outputs.items())
    }


def _is_among(names: Names, statistic: str) -> bool:
    return names is None or statistic in names


@lru_cache(maxsize=MAX_LAYOUTS)
def _readers(layout: int, names: Names) -> tuple[Sequence[tuple[str, Readers]], bool]:
    """Return a function for each statistic to read, and whether one of them needs `rest`."""
    known = _layout(layout)
    outputs = known.outputs
    forms = [form for _, entries in outputs for _, form, _ in entries]
    place = {DIGEST: 2 * len(outputs)}
    place[DOUBLE] = place[DIGEST] + forms.count(DIGEST)
    nested = sum(
        len(detail) for _, entries in outputs for _, form, detail in entries if form == NESTED
    )
    place[SINGLE] = place[DOUBLE] + forms.count(DOUBLE) + nested
    next_place = {form: count(first) for form, first in (*place.items(), (OTHER, 0))}
    # float64 numbers: each output's, then those within its dictionaries
    doubles = next_place[DOUBLE]
    readers = []
    for name, entries in outputs:
        of_output = [
            (statistic, _reader(form, next(next_place[form]) if form in next_place else detail))
            for statistic, form, detail in entries
            if form != NESTED
        ]
        of_output += [
            (statistic, _nested(detail, [next(doubles) for _ in detail]))
            for statistic, form, detail in entries
            if form == NESTED
        ]
        order = {statistic: number for number, (statistic, _, _) in enumerate(entries)}
        of_output.sort(key=lambda reader: order[reader[0]])
        readers.append((name, [reader for reader in of_output if _is_among(names, reader[0])]))
    needs_rest = any(
        form == OTHER and _is_among(names, statistic)
        for _, entries in outputs
        for statistic, form, _ in entries
    )
    return readers, needs_rest


def _reader(form: str, place: Any) -> Callable[[Values, Any], Any]:
    if form == FIXED:
        return lambda values, others: place
    if form == OTHER:
        return lambda values, others: others[place]
    if form == DIGEST:
        return lambda values, others: f"{values[place]:0{DIGITS}x}"
    if form == SINGLE:
        return lambda values, others: seven_digits(values[place])
    return lambda values, others: None if values[place] != values[place] else values[place]


def _nested(names: Sequence[str], places: Sequence[int]) -> Callable[[Values, Any], Any]:
    pairs = list(zip(names, places, strict=True))
    return lambda values, others: {name: values[place] for name, place in pairs}
