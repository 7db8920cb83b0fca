"""The glossary's sentences about what pages name in headings: those of docs/glossary.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.spec.verdicts import Verdict

_FILES = (
    Path(__file__).with_name("glossary.md"),  # in a wheel
    Path(__file__).parents[3] / "docs" / "glossary.md",
)
_ENTRY = re.compile(
    r"  - \*\*(?P<term>[^*(]+?)(?: \([^)]*\))?\*\* \(`(?P<value>\w+)`\): (?P<text>.+)"
)
_LABELS = {
    "error ÷ rounding": "rounding_ratio",
    "error ÷ tolerance": "tolerance_ratio",
    "masked fix": "fix_masked",
    "last canary": "canary",
    "advised tolerance": "tolerance",
    "declared tolerance": "tolerance",
    "selected flags": "flag",
}
"""Headings whose term has another name."""
_PLAIN = {"verdict", "kernel", "test", "job", "queued", "host", "common", "job_blocks"}
"""Terms that need no explanation in a heading; verdicts and grades have marks of their own."""
_MARKED = {str(word) for kind in (Verdict, Stability, Sharpness) for word in kind}


@cache
def terms() -> Mapping[str, str]:
    """Return the sentence about each term, by its value in the API and by its name."""
    text = next(file for file in _FILES if file.is_file()).read_text("utf-8")
    entries = [match for line in text.splitlines() if (match := _ENTRY.fullmatch(line))]
    named = {entry["value"]: entry for entry in entries if entry["value"] not in _PLAIN | _MARKED}
    by_name = {entry["term"].lower(): entry["text"] for entry in named.values()}
    return {**by_name, **{value: entry["text"] for value, entry in named.items()}}


def term(label: str) -> str:
    """Return the glossary's sentence about a heading such as "Last canary"; "" for none."""
    text = label.lower()
    known = terms()
    name = _LABELS.get(text, text)
    names = (name, name.replace(" ", "_"), name.removesuffix("s"))
    return next((known[name] for name in names if name in known), "")
