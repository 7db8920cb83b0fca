"""Compute how long a newcomer reads until each first goal: `python -m checks.reading` prints it.

A road is the pages in the order in which they are read, each to its end or to the text that no
longer matters for the goal. Every word counts, code, tables and output included.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
WORDS_PER_MINUTE = 200
"""A slow reader's pace with technical prose; nobody reads code that is pasted word by word."""
PASTE_S = 5
"""From a block of the page to the terminal."""
LIMIT_MINUTES = 10
"""Reading, pasting and machine time together until each goal."""


@dataclass(frozen=True, slots=True)
class Road:
    """A goal, and (page, the text at which its reader stops; empty: at the page's end)."""

    goal: str
    pages: tuple[tuple[str, str], ...]
    machine_s: int
    """The longer one of 2026-11-23 and 2026-11-27; docs/evidence.md says by whom and how busy."""


ROADS = (
    Road("own arrays", (("python", "## `Judgment`"),), 4),
    Road("own pytest", (("pytest", "## Suites of a worker"),), 9),
    Road("own GoogleTest program", (("gtest", "## A build"),), 23),
    Road("own executor", (("executors", "## The contract"),), 21),
    Road("own kind", (("own_kernel", "The gauge measures a test"),), 25),
    Road("CI gate", (("ci", "## What it reads from the pipeline"), ("ci_github", "")), 133),
)


def read_until(page: str, end: str) -> str:
    """Return the text of a page before `end`. Raises ValueError where the page lacks it."""
    text = (DOCS / f"{page}.md").read_text()
    return text[: text.index(end)] if end else text


def words(road: Road) -> int:
    """Return the words until the goal."""
    return sum(len(read_until(page, end).split()) for page, end in road.pages)


def pastes(road: Road) -> int:
    """Return the fenced blocks until the goal."""
    return sum(read_until(page, end).count("```") // 2 for page, end in road.pages)


def minutes(road: Road) -> float:
    """Return reading, pasting and machine time until the goal."""
    seconds = PASTE_S * pastes(road) + road.machine_s
    return words(road) / WORDS_PER_MINUTE + seconds / 60


if __name__ == "__main__":
    for road in ROADS:
        print(
            f"{road.goal:24}{words(road):6} words{words(road) / WORDS_PER_MINUTE:6.1f} min to read"
            f"{pastes(road):4} blocks{road.machine_s:5} s machine{minutes(road):6.1f} min together"
        )
