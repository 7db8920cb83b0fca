"""A job that was imported, in words: which file, by whom it was run, and whether there are numbers
behind its red and green.
"""

from __future__ import annotations

from dataclasses import dataclass

from gonogo_dashboards.kit import words
from gonogo_storage.jobs.job import Job

NAMES = {
    "junit": "JUnit XML",
    "gtest-xml": "googletest's XML",
    "gtest-json": "googletest's JSON",
    "ctrf": "CTRF",
    "gonogo": "the lines of GoNoGo's pytest plug-in",
}


@dataclass(frozen=True)
class ImportedView:
    """What the page says of it."""

    format: str
    tool: str | None
    tests: int
    numbers: bool
    started_at: str | None
    words: str


def read(job: Job) -> ImportedView | None:
    """None of a job that ran here."""
    told = job.request.get("import")
    if told is None:
        return None
    numbers = bool(told["numbers"])
    said = f"Imported from {NAMES[told['format']]}" + (
        ": the numbers are those that it brought, judged here."
        if numbers
        else ": history without numbers. It says red and green, and nothing of whether a pass means anything."
    )
    return ImportedView(
        told["format"], told["tool"], int(told["tests"]), numbers, told["started_at"], said
    )


def facts(job: Job) -> list[tuple[str, str]]:
    """For the table of what was asked; none of a job that ran here."""
    found = read(job)
    if found is None:
        return []
    ran = [
        ("ran", " ".join(filter(None, ("elsewhere,", found.tool, found.started_at))).rstrip(","))
    ]
    return [("imported", f"{words.count(found.tests, 'test')} from {NAMES[found.format]}"), *ran]
