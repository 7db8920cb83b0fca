"""GitLab CI: a JUnit report of the tests, and a report of code quality for the changed lines."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

from gonogo_service.cli.pipeline.outcome import BLOCKED, Outcome, Remark

JUNIT, CODE_QUALITY = "gonogo-junit.xml", "gonogo-code-quality.json"
SEVERITIES = {"failure": "major", "warning": "minor", "notice": "info"}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 doesn't allow, not even as references."""


def write_junit(outcome: Outcome, path: Path) -> None:
    """Write a test case per test: failed where it closes the gate, an error where it can't tell."""
    suite = ElementTree.Element("testsuite", name=_clean(outcome.suite))
    counts = {"tests": len(outcome.remarks), "failures": 0, "errors": 0}
    for remark in outcome.remarks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=_clean(remark.name),
            classname=_clean(outcome.suite),
            file=_clean(remark.file),
        )
        tag = "system-out"
        attributes = {}
        if remark.code:
            tag = "failure" if remark.code == BLOCKED else "error"
            counts[f"{tag}s"] += 1
            attributes = {"type": remark.label, "message": _clean(remark.words)}
        ElementTree.SubElement(case, tag, attributes).text = _clean(_text(remark))
    for name, count in counts.items():
        suite.set(name, str(count))
    suites = ElementTree.Element("testsuites", name="GoNoGo")
    suites.append(suite)
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def write_code_quality(outcome: Outcome, path: Path) -> None:
    """Write an issue per test that needs attention, at its line of the suite file."""
    issues = [
        {
            "description": f"{remark.label}: {remark.name}: {remark.words}",
            "check_name": remark.label,
            "fingerprint": hashlib.sha256(
                f"{outcome.suite}\0{remark.name}\0{remark.label}".encode()
            ).hexdigest(),
            "severity": SEVERITIES[remark.level],
            "location": {"path": remark.file, "lines": {"begin": remark.line}},
        }
        for remark in outcome.remarks
        if remark.level is not None
    ]
    path.write_text(json.dumps(issues, indent=2) + "\n", "utf-8")


def _text(remark: Remark) -> str:
    lines = (remark.label, remark.sentence, remark.words, remark.diagnosis)
    return "\n".join(filter(None, (*lines, remark.check, remark.url)))


def _clean(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
