"""docs/glossary.md can be read by a program, has a line for every verdict and grade, and keeps its
sentences short."""

from __future__ import annotations

import re
from pathlib import Path

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_dashboards.kit import glossary

LINES = (Path(__file__).parents[3] / "docs/glossary.md").read_text().splitlines()
GROUP = re.compile(r"- \*\*(?P<group>[^*]+)\*\*")
ENTRY = re.compile(r"  - \*\*(?P<term>[^*]+)\*\*(?: \(`(?P<value>[a-z_]+)`\))?: (?P<text>.+)")

ENTRIES = [match for line in LINES if (match := ENTRY.fullmatch(line))]


def test_every_verdict_and_every_grade_is_defined() -> None:
    values = {entry["value"] for entry in ENTRIES}
    kinds = (Verdict, Explanation, Stability, Sharpness)
    assert {str(word) for kind in kinds for word in kind} - {"unknown"} <= values


def test_pages_explain_headings_in_the_glossary_s_sentences() -> None:
    definitions = {entry["value"]: entry["text"] for entry in ENTRIES if entry["value"]}
    assert glossary.term("Last canary") == definitions["canary"]
    assert glossary.term("Branch and board") == definitions["variant"]
    assert glossary.term("Builds") == definitions["build"]
    assert glossary.term("Job") == ""
