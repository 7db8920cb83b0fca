"""What a person sees of a gauge: the parts, the windows, public gates, and one line a test of
many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from gonogo_cli.kit import show

if TYPE_CHECKING:
    from gonogo.gauge.elsewhere import Tried
    from gonogo.gauge.rates import Rate
    from gonogo.gauge.report import Gauge
    from gonogo.gauge.tests_file import Entry

COLOURS = {"sharp": "green", "blunt": "bold magenta", "unmeasured": "yellow"}


def tell(found: Sequence[tuple[Entry, Gauge, list[Tried]]], *, single: bool) -> None:
    """Everything about one test, or the summary of many."""
    from gonogo.gauge.elsewhere import beyond

    out = show.console()
    if not single:
        out.print(summary(found))
        for entry, result, tried in found:
            out.print(
                Text.assemble((entry.name, "bold"), f": {result.words}{beyond(tried)}"),
                soft_wrap=True,
            )
        return
    entry, result, tried = found[0]
    seeds = f"{result.seeds} seed{'s' * (result.seeds > 1)}"
    out.print(Text(f"{entry.name}, {seeds}", style="bold"), soft_wrap=True)
    for table in (parts(result), windows(result), gates(result)):
        out.print(table)
    grade = (result.sharpness.value, COLOURS[result.sharpness])
    out.print(
        Text.assemble("the test is ", grade, f". {result.words}{beyond(tried)}"), soft_wrap=True
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in columns:
        table.add_column(name)
    return table


def rate(found: Rate) -> str:
    """ "2 of 12 [2.1%, 48%]"."""
    if not found.of:
        return "-"
    low, high = found.interval
    return f"{found.count} of {found.of} [{low:.1%}, {high:.1%}]"


def parts(result: Gauge) -> Table:
    """One line a part: a right one with its false alarms, a wrong one with its misses."""
    table = _table(
        "kernel", "is", "failed wrongly", "passed wrongly", "can't show", "rounding doesn't explain"
    )
    for name, alarms in result.false_alarms.items():
        table.add_row(
            name,
            Text("right", style="green"),
            Text(rate(alarms), style="bold red" if alarms.count else ""),
            "",
            "",
            "",
        )
    for name, missed in result.misses.items():
        style = "bold magenta" if missed.count else "" if missed.of else "dim"
        hidden, seen = result.hidden.get(name, 0), result.seen[name]
        table.add_row(
            name,
            Text("wrong", style="red"),
            "",
            Text(rate(missed), style=style),
            str(hidden or ""),
            f"{seen.count} of {seen.of}",
        )
    return table


def windows(result: Gauge) -> Table:
    """One line a comparator and output: the edges of the window."""
    table = _table(
        "comparator",
        "output",
        "right kernels need",
        "observed",
        "up to",
        "works",
        "misses at the lower edge",
    )
    for window in result.windows:
        found = window.to_json()
        first = True
        for name, edges in found["outputs"].items():
            table.add_row(
                str(window.comparator) if first else "",
                name,
                show.number(edges["lower"]),
                show.number(edges["observed"]),
                show.number(edges["upper"]),
                ("yes" if window.works else "no") if first else "",
                ", ".join(window.missed) if first else "",
            )
            first = False
        if not found["outputs"]:
            table.add_row(str(window.comparator), "", "unbounded", "", "", "no", "")
    return table


def gates(result: Gauge) -> Table:
    """One line a public gate, on the same runs."""
    table = _table("gate of a public suite", "false alarms", "rejects", "misses")
    for name, (alarms, rejected, missed) in result.gates.items():
        table.add_row(
            name,
            rate(alarms),
            f"{len(rejected)} of {len(rejected) + len(missed)}",
            ", ".join(missed),
        )
    return table


def summary(found: Sequence[tuple[Entry, Gauge, list[Tried]]]) -> Table:
    """One line a test."""
    table = _table("test", "is", "false alarms", "missed", "blind to", "a tolerance works")
    for entry, result, _ in found:
        able = sum(1 for each in result.misses.values() if each.of)
        table.add_row(
            entry.name,
            Text(result.sharpness.value, style=COLOURS[result.sharpness]),
            rate(result.alarms),
            rate(result.missed),
            f"{len(result.blind)} of {able}",
            "yes" if result.advice.works else f"no ({len(result.advice.missed)} missed)",
        )
    return table
