"""The evidence of a finding for reading: whatever its JSON holds, as facts and tables in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards import commands, words

MOST_ROWS = 40
"""Rows of a table, and members of a list, on a page; all of them are in the JSON twin."""
_RATE = {"failures", "runs", "low", "high"}
_SHOWN_APART = {"check", "check_leaves_out", "sentence", "diagnosis", "words"}
_DIGITS = 12
_LONG_HEX = 16


@dataclass(frozen=True)
class ProofTable:
    """A part of the evidence with rows: one cell of text per column. `left_out`: rows that are not shown."""

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
    for name, value in evidence.items():
        if name in _SHOWN_APART or value is None or value in ({}, [], ""):
            continue
        table = _table(name, value)
        if table is not None:
            tables.append(table)
        else:
            facts.append((label(name), text(value)))
    checks = evidence.get("check") or ()
    left = evidence.get("check_leaves_out") or ()
    return Proof(
        tuple(facts), tuple(tables), (checks,) if isinstance(checks, str) else tuple(str(each) for each in checks),
        tuple(str(each) for each in left),
    )


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
    """A value of the evidence in one line: numbers with three digits, digests shortened, rates in words."""
    if isinstance(value, Mapping):
        if value.keys() >= _RATE:
            return rate_words(value)
        return ", ".join(f"{label(str(name))} {text(each)}" for name, each in value.items() if each is not None)
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(text(each) for each in value[:MOST_ROWS])
        return f"{shown}, … ({len(value):,})" if len(value) > MOST_ROWS else shown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return words.number(value)
    if isinstance(value, str) and len(value) >= _LONG_HEX and all(each in "0123456789abcdef" for each in value):
        return value[:_DIGITS]
    return "–" if value is None else commands.plain(value) if not isinstance(value, int) else str(value)


def _table(name: str, value: Any) -> ProofTable | None:
    """Lists of objects, and objects of objects (their names become the first column), are tables."""
    if isinstance(value, Mapping) and value and all(isinstance(each, Mapping) for each in value.values()):
        rows = [{"": key, **each} for key, each in value.items()] if not any(each.keys() >= _RATE for each in value.values()) else [
            {"": key, "rate": each} for key, each in value.items()
        ]
    elif isinstance(value, Sequence) and not isinstance(value, str) and value and all(isinstance(each, Mapping) for each in value):
        rows = [dict(each) for each in value]
    else:
        return None
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    cells = tuple(tuple(text(row.get(column)) for column in columns) for row in rows[:MOST_ROWS])
    return ProofTable(label(name), tuple(label(column) for column in columns), cells, max(0, len(rows) - MOST_ROWS))
