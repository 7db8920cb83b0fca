"""The reports of a pipeline: for GitHub annotations and a summary, for GitLab JUnit and quality."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from gonogo.reports import markdown
from gonogo.reports.texts import for_xml
from gonogo_service.cli.pipeline.outcome import BLOCKED, Outcome, Remark

JUNIT, CODE_QUALITY = "gonogo-junit.xml", "gonogo-code-quality.json"
COMMANDS = {"failure": "error", "warning": "warning", "notice": "notice"}
"""Level -> GitHub's workflow command, the loudest first."""
SEVERITIES = {"failure": "major", "warning": "minor", "notice": "info"}
ICONS = {0: "✅", 1: "❌", 3: "⚠️"}
MAX_ANNOTATIONS = 10
"""GitHub shows so many annotations of a level and a step."""
MAX_LISTED = 20
MAX_SUMMARY_BYTES = 1_000_000
"""A step's summary has at most 1 MiB."""


def workflow_commands(outcome: Outcome) -> Iterator[str]:
    """Yield a workflow command for each test that needs attention, the loudest first."""
    for level, command in COMMANDS.items():
        remarks = [remark for remark in outcome.remarks if remark.level == level]
        for remark in remarks[:MAX_ANNOTATIONS]:
            texts = remark.sentence, remark.words, remark.diagnosis, remark.check, remark.url
            yield _command(
                command,
                "\n".join(filter(None, texts)),
                file=remark.file,
                line=str(remark.line),
                title=f"{remark.label}: {remark.name}",
            )
    if outcome.note is not None:
        yield _command("warning", outcome.note, title="GoNoGo compared nothing")


@contextmanager
def without_commands(provider: str) -> Iterator[None]:
    """Keep GitHub from taking what the block prints, such as a test's name, for a command."""
    token = secrets.token_hex(16)
    if provider == "github":
        print(f"::stop-commands::{token}", flush=True)
    yield
    if provider == "github":
        print(f"::{token}::", flush=True)


def summary(outcome: Outcome) -> str:
    """Return the outcome in Markdown: for a job's summary, or a comment."""
    against = "" if outcome.base is None else f" against {markdown.code(outcome.base)}"
    parts = [
        f"### {ICONS[outcome.code]} GoNoGo: {markdown.text(outcome.title)}\n",
        f"{markdown.link(outcome.suite, outcome.url)}: {markdown.code(outcome.build)}{against}"
        f" ({markdown.text(outcome.words)})\n",
    ]
    if outcome.note is not None:
        parts.append(f"{markdown.text(outcome.note)}\n")
    loud = [remark for remark in outcome.remarks if remark.level is not None]
    for label, group in groupby(loud, key=lambda remark: remark.label):
        remarks = list(group)
        parts.append(f"**{label}** ({len(remarks)}): {markdown.text(remarks[0].sentence)}\n")
        parts += [_item(remark) for remark in remarks[:MAX_LISTED]]
        if len(remarks) > MAX_LISTED:
            parts.append(f"- and {len(remarks) - MAX_LISTED} more")
        parts.append("")
    text = "\n".join(parts)
    return text.encode()[:MAX_SUMMARY_BYTES].decode(errors="ignore") + "\n"


def _item(remark: Remark) -> str:
    item = f"- {markdown.link(remark.name, remark.url)}: {markdown.text(remark.words)}"
    if remark.diagnosis:
        item += f"  \n  {markdown.text(remark.diagnosis)}"
    return item if remark.check is None else f"{item}\n{markdown.block(remark.check, '  ')}"


def write_github(outcome: Outcome, environment: Mapping[str, str]) -> None:
    """Print the annotations; append the summary and the outputs to the files that GitHub names."""
    for line in workflow_commands(outcome):
        print(line, flush=True)
    outputs = ("code", "build", "run", "url")
    texts = {
        "GITHUB_STEP_SUMMARY": summary(outcome),
        "GITHUB_OUTPUT": "".join(f"{name}={getattr(outcome, name)}\n" for name in outputs),
    }
    for variable, text in texts.items():
        if path := environment.get(variable):
            append(Path(path), text)


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _command(kind: str, message: str, **properties: str) -> str:
    """Return a workflow command; what GitHub would read as its own signs is escaped."""

    def data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    named = properties.items()
    written = (f"{name}={data(v).replace(':', '%3A').replace(',', '%2C')}" for name, v in named)
    return f"::{kind} {','.join(written)}::{data(message)}"


def write_junit(outcome: Outcome, path: Path) -> None:
    """Write a test case per test: failed where it closes the gate, an error where it can't tell."""
    suite = ElementTree.Element("testsuite", name=for_xml(outcome.suite))
    counts = {"tests": len(outcome.remarks), "failures": 0, "errors": 0}
    for remark in outcome.remarks:
        names = {"name": remark.name, "classname": outcome.suite, "file": remark.file}
        cleaned = {name: for_xml(text) for name, text in names.items()}
        case = ElementTree.SubElement(suite, "testcase", cleaned)
        tag, attributes = "system-out", {}
        if remark.code:
            tag = "failure" if remark.code == BLOCKED else "error"
            counts[f"{tag}s"] += 1
            attributes = {"type": remark.label, "message": for_xml(remark.words)}
        texts = remark.label, remark.sentence, remark.words, remark.diagnosis
        text = "\n".join(filter(None, (*texts, remark.check, remark.url)))
        ElementTree.SubElement(case, tag, attributes).text = for_xml(text)
    for name, count in counts.items():
        suite.set(name, str(count))
    suites = ElementTree.Element("testsuites", name="GoNoGo")
    suites.append(suite)
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def write_code_quality(outcome: Outcome, path: Path) -> None:
    """Write an issue per test that needs attention, at its line of the suite file."""
    issues = []
    for remark in outcome.remarks:
        if remark.level is not None:
            identity = f"{outcome.suite}\0{remark.name}\0{remark.label}"
            issues.append(
                {
                    "description": f"{remark.label}: {remark.name}: {remark.words}",
                    "check_name": remark.label,
                    "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
                    "severity": SEVERITIES[remark.level],
                    "location": {"path": remark.file, "lines": {"begin": remark.line}},
                }
            )
    path.write_text(json.dumps(issues, indent=2) + "\n", "utf-8")
