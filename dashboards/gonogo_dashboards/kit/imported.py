"""An imported job in words: its file, its tool, and whether it has numbers."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo_dashboards.kit import words
from gonogo_service.jobs.model import JobRow

NAMES = {
    "junit": "JUnit XML",
    "gtest-xml": "GoogleTest's XML",
    "gtest-json": "GoogleTest's JSON",
    "ctrf": "CTRF",
    "gonogo": "the lines of GoNoGo's pytest plug-in",
}


@dataclass(frozen=True)
class ImportedView:
    """The facts about an import that the page shows."""

    format: str
    tool: str | None
    tests: int
    numbers: bool
    started_at: str | None
    words: str


def read(job: JobRow) -> ImportedView | None:
    """Return the facts about a job's import; None for a job that ran here."""
    stored = job.import_
    if stored is None:
        return None
    text = f"Imported from {NAMES[stored.format]}" + (
        ": the numbers come with it and were judged here."
        if stored.numbers
        else ": history without numbers. It shows red and green, but not whether a pass is hollow."
    )
    return ImportedView(
        stored.format, stored.tool, stored.tests, stored.numbers, stored.started_at, text
    )


def facts(job: JobRow) -> list[tuple[str, str]]:
    """Return rows for the table of the request; none for a job that ran here."""
    view = read(job)
    if view is None:
        return []
    ran = [("ran", " ".join(filter(None, ("elsewhere,", view.tool, view.started_at))).rstrip(","))]
    return [("imported", f"{words.count(view.tests, 'test')} from {NAMES[view.format]}"), *ran]
