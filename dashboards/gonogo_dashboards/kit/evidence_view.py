"""The evidence of a finding for reading: whatever its JSON holds, as facts and tables in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo_dashboards.kit import commands, words

MOST_ROWS = 40
"""Rows of a table on a page; all of them are in the JSON twin."""
MOST_MEMBERS = 12
"""Members of a list in a line."""
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RATE = {"failures", "runs", "low", "high"}
_SHOWN_APART = {"check", "check_leaves_out", "sentence", "diagnosis", "words"}
_DIGITS = 12
_LONG_HEX = 16


@dataclass(frozen=True)
class ProofTable:
    """A part of the evidence with rows: one cell of text per column. `left_out`: rows that are not
    shown.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


@dataclass(frozen=True)
class Proof:
    """The evidence as names with values, tables, and the commands that show it again."""

    facts: tuple[tuple[str, str], ...]
    tables: tuple[ProofTable, ...]
    checks: tuple[str, ...]
    check_leaves_out: tuple[str, ...]


def read(evidence: Mapping[str, Any]) -> Proof:
    """From the evidence of any kind of finding; what is null or empty is left out."""
    facts: list[tuple[str, str]] = []
    tables: list[ProofTable] = []
    _collect("", evidence, facts, tables)
    checks = evidence.get("check") or ()
    left = evidence.get("check_leaves_out") or ()
    commands_shown = (checks,) if isinstance(checks, str) else tuple(str(each) for each in checks)
    return Proof(tuple(facts), tuple(tables), commands_shown, tuple(str(each) for each in left))


def _collect(
    above: str, values: Mapping[str, Any], facts: list[tuple[str, str]], tables: list[ProofTable]
) -> None:
    """Facts and tables of an object; objects that hold more than plain values are gone through, and
    lend their names.
    """
    for name, value in values.items():
        if name in _SHOWN_APART or value is None or value in ({}, [], ""):
            continue
        said = f"{above}: {label(name)}" if above else label(name)
        table = _table(said, value)
        if table is not None:
            tables.append(table)
        elif (
            isinstance(value, Mapping)
            and not value.keys() >= _RATE
            and any(_deep(each) for each in value.values())
        ):
            _collect(said, value, facts, tables)
        else:
            facts.append((said, text(value)))


def _deep(value: Any) -> bool:
    """Whether a value is more than a line: an object, a rate, or a list of objects."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 1


def label(name: str) -> str:
    """A JSON name for reading."""
    return name.replace("_", " ")


def rate_words(rate: Mapping[str, Any]) -> str:
    """A rate with its interval: "3 of 20 (15%, 4% to 35%)"."""
    if not rate.get("runs") or rate.get("low") is None or rate.get("high") is None:
        return "UNKNOWN: no run"
    share = rate["failures"] / rate["runs"]
    return f"{rate['failures']:,} of {rate['runs']:,} ({percent(share)}, {percent(rate['low'])} to {percent(rate['high'])})"


def percent(share: float | None) -> str:
    """A share of 1 for reading."""
    return "–" if share is None else f"{100 * share:.3g}%"


def text(value: Any) -> str:
    """A value of the evidence in one line: numbers with three digits, digests shortened, rates in
    words.
    """
    if isinstance(value, Mapping):
        if value.keys() >= _RATE:
            return rate_words(value)
        if isinstance(value.get("words"), str):
            return str(value["words"])
        return ", ".join(
            f"{label(str(name))} {text(each)}" for name, each in value.items() if each is not None
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(text(each) for each in value[:MOST_MEMBERS])
        return f"{shown}, … ({len(value):,} in all)" if len(value) > MOST_MEMBERS else shown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return words.number(value)
    if (
        isinstance(value, str)
        and len(value) >= _LONG_HEX
        and all(each in "0123456789abcdef" for each in value)
    ):
        return value[:_DIGITS]
    if isinstance(value, str) and _ID.fullmatch(value):
        return f"…{value[-_DIGITS:]}"  # ids begin with the time: those of one night begin alike
    return (
        "–"
        if value is None
        else commands.plain(value)
        if not isinstance(value, int)
        else str(value)
    )


def _table(name: str, value: Any) -> ProofTable | None:
    """Lists of objects, and objects of objects (their names become the first column), are
    tables.
    """
    if (
        isinstance(value, Mapping)
        and value
        and all(isinstance(each, Mapping) for each in value.values())
    ):
        rates = any(each.keys() >= _RATE for each in value.values())
        if len(value) == 1 and not rates:
            return None
        rows = [
            {"": key, "rate": each} if rates else {"": key, **each} for key, each in value.items()
        ]
    elif (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and value
        and all(isinstance(each, Mapping) for each in value)
    ):
        rows = [dict(each) for each in value]
    else:
        return None
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    cells = tuple(tuple(text(row.get(column)) for column in columns) for row in rows[:MOST_ROWS])
    return ProofTable(
        name, tuple(label(column) for column in columns), cells, max(0, len(rows) - MOST_ROWS)
    )
