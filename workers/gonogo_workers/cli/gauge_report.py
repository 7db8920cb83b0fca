"""A gauge on the terminal: parts, windows, public gates, and a summary of many tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from gonogo.cli.kit import show
from gonogo.spec.arithmetic_words import unseen

if TYPE_CHECKING:
    from gonogo.gauge.summary import MeasuredTest, TriedSummary
    from gonogo.gauge.tests_file import Entry

COLORS = {"sharp": "green", "blunt": "bold magenta", "unmeasured": "yellow"}


def show_gauges(
    results: Sequence[tuple[Entry, MeasuredTest, list[TriedSummary]]], *, single: bool
) -> None:
    """Print everything about one test, or the summary of many."""
    from gonogo.gauge.elsewhere import beyond

    out = show.console()
    if not single:
        out.print(summary(results))
        for entry, result, tried in results:
            out.print(
                Text.assemble((entry.name, "bold"), f": {result.words}{beyond(tried)}"),
                soft_wrap=True,
            )
        return
    entry, result, tried = results[0]
    seeds = f"{result.seeds} seed{'s' * (result.seeds > 1)}"
    out.print(Text(f"{entry.name}, {seeds}", style="bold"), soft_wrap=True)
    for table in (parts(result), arithmetic(result), windows(result), gates(result)):
        out.print(table)
    grade = (result.sharpness.value, COLORS[result.sharpness])
    out.print(
        Text.assemble("the test is ", grade, f". {result.words}{beyond(tried)}"), soft_wrap=True
    )


def parts(result: MeasuredTest) -> Table:
    """Return a table of kernels: right ones with false alarms, wrong ones with misses."""
    table = show.plain_table(
        "kernel", "is", "failed wrongly", "passed wrongly", "can't show", "rounding doesn't explain"
    )
    for name, alarms in result.false_alarms.parts.items():
        style = "bold red" if alarms.count else ""
        table.add_row(name, Text("right", style="green"), Text(str(alarms), style=style))
    for name, missed in result.misses.parts.items():
        style = "bold magenta" if missed.count else "" if missed.of else "dim"
        table.add_row(
            name,
            Text("wrong", style="red"),
            "",
            Text(str(missed), style=style),
            str(missed.cannot_show or ""),
            f"{missed.unexplained.count} of {missed.unexplained.of}",
        )
    return table


def arithmetic(result: MeasuredTest) -> Table:
    """Return the arithmetics of the kernels, and what no seed of them could have shown."""
    from gonogo.gauge.summary import alike

    table = show.plain_table("kernels", "output", "arithmetic", "detection limits")
    for kernels, outputs in alike(result.arithmetic):
        for number, output in enumerate(outputs):
            limits = unseen(output.detection_limits) or "-"
            table.add_row("" if number else kernels, output.output, output.model, limits)
    return table


def windows(result: MeasuredTest) -> Table:
    """Return a table with the edges of the window, a row per comparator and output."""
    table = show.plain_table(
        "comparator",
        "output",
        "right kernels need",
        "observed",
        "up to",
        "works",
        "misses at the lower edge",
    )
    for window in result.windows:
        works = "yes" if window.works else "no"
        for number, (name, edges) in enumerate(window.outputs.items()):
            values = map(show.number, (edges.lower, edges.observed, edges.upper))
            last = ("", "") if number else (works, ", ".join(window.missed))
            table.add_row("" if number else str(window), name, *values, *last)
        if not window.outputs:
            table.add_row(str(window), "", "unbounded", "", "", "no", "")
    return table


def gates(result: MeasuredTest) -> Table:
    """Return a table of what public suites' gates would have said of the same runs."""
    table = show.plain_table("gate of a public suite", "limit", "false alarms", "rejects", "misses")
    for name, gate in result.gates.items():
        rejected = f"{len(gate.rejected)} of {len(gate.rejected) + len(gate.missed)}"
        missed = ", ".join(gate.missed)
        table.add_row(name, gate.limit, str(gate.false_alarms), rejected, missed)
    return table


def summary(results: Sequence[tuple[Entry, MeasuredTest, list[TriedSummary]]]) -> Table:
    """Return a table with a row per test."""
    table = show.plain_table(
        "test", "is", "false alarms", "missed", "blind to", "a tolerance works"
    )
    for entry, result, _ in results:
        able = sum(1 for misses in result.misses.parts.values() if misses.of)
        table.add_row(
            entry.name,
            Text(result.sharpness.value, style=COLORS[result.sharpness]),
            str(result.false_alarms),
            str(result.misses),
            f"{len(result.blind)} of {able}",
            "yes" if result.advice.works else f"no ({len(result.advice.missed)} missed)",
        )
    return table
