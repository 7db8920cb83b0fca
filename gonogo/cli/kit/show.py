"""Jobs on the terminal: words and colors of verdicts, and progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gonogo.cli.kit.terminal import plain
from gonogo.spec import arithmetic_words
from gonogo.spec.selections import Selection, is_selection
from gonogo.spec.verdicts import Verdict

COLORS = {
    "pass": "green",
    "pass_by_tolerance": "bold magenta",
    "fail_by_tolerance": "yellow",
    "fail": "bold red",
    "suspect": "yellow",
    "hang": "red",
    "crash": "red",
    "error": "red",
}
NOTHING_JUDGED = frozenset({"not_judged", "skipped", "not_run"})
"""Verdicts of kernels that are never a success. A selection is asked by its outcomes first."""


class SafeConsole(Console):
    """A console whose escapes are its own: those in what it prints are shown as pictures."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is printed."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else plain(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


def console(*, stderr: bool = False) -> Console:
    """Return a console; without a terminal it is 160 wide, so that a log keeps whole sentences."""
    out = SafeConsole(stderr=stderr)
    return out if out.is_terminal else SafeConsole(stderr=stderr, width=160)


def say(out: Console, text: str, *, style: str = "") -> None:
    """Print a text of others as it is: no markup, no colors of its own, no line breaks."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print one JSON document on stdout: pretty on a terminal, else on one line."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def verdict(name: str | None) -> Text:
    """Return the label of a verdict, in its color."""
    return Text(Verdict(name).label if name else "-", style=COLORS.get(name or "", ""))


def state(name: str) -> str:
    """Return a state as people write it here; the API has the British spelling."""
    return name.replace("cancelled", "canceled").replace("cancelling", "canceling")


def verdict_value(text: str) -> str:
    """Return the verdict with this label, in any case; any other text as it is."""
    labels = {verdict.label.lower(): verdict.value for verdict in Verdict}
    return labels.get(text.lower(), text)


def counts(verdicts: Mapping[str, int]) -> str:
    """Return counts of verdicts or of a runner's outcomes as "3 pass, 1 hollow pass"."""
    labels = {verdict.value: verdict.label.lower() for verdict in Verdict}
    return (
        ", ".join(
            f"{number} {labels.get(name, name)}" for name, number in verdicts.items() if number
        )
        or "-"
    )


def failed(name: str | None, fail_on: str) -> bool:
    """Return whether a job with this verdict makes the exit code 1.

    A job without a verdict (canceled, failed) always does, and so does one in which nothing was
    judged. `new` is `hollow` for a single job: it has no base to compare with, so all is new.
    """
    from gonogo.flakiness.gating import LEVELS, FailOn

    if name is None or name in NOTHING_JUDGED:
        return True
    level = FailOn(fail_on)
    if level is FailOn.any:
        return name != Verdict.pass_
    return name in LEVELS[FailOn.hollow if level is FailOn.new else level]


def number(value: float | int | None, digits: int = 3) -> str:
    """Return a statistic in few characters; "-" for null."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}"


def plain_words(value: str) -> str:
    """Return a value that has no label of its own as people write it: not_judged is not judged."""
    return value.replace("_", " ")


def tell(words: str) -> None:
    """Say something about work that goes on, on standard error; above the bars, if there are."""
    print(words, file=sys.stderr, flush=True)


def progress(out: Console) -> Progress:
    """Return progress bars for jobs; call `add_task(name, total=...)`.

    Without a terminal nothing is drawn.
    """
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=out,
        disable=not out.is_terminal,
    )


def plain_table(*columns: str, right: Container[str] = (), **options: Any) -> Table:
    """Return a table without lines; columns of numbers stand on the right."""
    table = Table(box=None, header_style="dim", pad_edge=False, **options)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    return table


def what(test: Mapping[str, Any]) -> str:
    """Return the shape of a test, or the tests of a selection, in a few characters."""
    if is_selection(test):
        return Selection.parse(test).words
    return "x".join(str(length) for length in test.get("shape", []))


def sample(item: Mapping[str, Any]) -> str:
    """Return the seed of a result; where it has none, its iteration in parentheses."""
    return str(item["seed"]) if item["seed"] is not None else f"({item.get('iteration')})"


def arithmetic_lines(rows: Iterable[Mapping[str, Any]]) -> list[Text]:
    """Return a line per output with its arithmetic and its detection limits."""
    return [Text(output.words) for output in arithmetic_words.of_results(rows)]
