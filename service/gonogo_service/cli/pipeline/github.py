"""GitHub Actions: annotations, the job's summary, and the outputs of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from gonogo.reports import markdown
from gonogo_service.cli.pipeline.outcome import Outcome, Remark

COMMANDS = {"failure": "error", "warning": "warning", "notice": "notice"}
MAX_ANNOTATIONS = 10
"""GitHub shows so many annotations of a level and a step."""
MAX_LISTED = 20
MAX_SUMMARY_BYTES = 1_000_000
"""A step's summary has at most 1 MiB."""
ICONS = {0: "✅", 1: "❌", 3: "⚠️"}


def workflow_commands(outcome: Outcome) -> Iterator[str]:
    """Yield a workflow command for each test that needs attention, the loudest first."""
    shown = dict.fromkeys(COMMANDS, 0)
    for remark in sorted(
        (remark for remark in outcome.remarks if remark.level is not None),
        key=lambda remark: list(COMMANDS).index(str(remark.level)),
    ):
        level = str(remark.level)
        shown[level] += 1
        if shown[level] <= MAX_ANNOTATIONS:
            yield _command(
                COMMANDS[level],
                "\n".join(_lines(remark)),
                file=remark.file,
                line=str(remark.line),
                title=f"{remark.label}: {remark.name}",
            )
    if outcome.note is not None:
        yield _command("warning", outcome.note, title="GoNoGo compared nothing")


def summary(outcome: Outcome) -> str:
    """Return the outcome in Markdown: for a job's summary, or a comment."""
    against = "" if outcome.base is None else f" against {markdown.code(outcome.base)}"
    parts = [
        f"### {ICONS.get(outcome.code, '❌')} GoNoGo: {markdown.text(outcome.title)}\n",
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


def write(outcome: Outcome, environment: Mapping[str, str]) -> None:
    """Print the annotations; append the summary and the outputs to the files that GitHub names."""
    for line in workflow_commands(outcome):
        print(line, flush=True)
    if path := environment.get("GITHUB_STEP_SUMMARY"):
        _append(path, summary(outcome))
    if path := environment.get("GITHUB_OUTPUT"):
        outputs = {
            "code": outcome.code,
            "build": outcome.build,
            "run": outcome.run,
            "url": outcome.url,
        }
        _append(path, "".join(f"{name}={value}\n" for name, value in outputs.items()))


def _append(path: str, text: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


def _lines(remark: Remark) -> Iterator[str]:
    yield from filter(None, (remark.sentence, remark.words, remark.diagnosis))
    yield from filter(None, (remark.check, remark.url))


def _item(remark: Remark) -> str:
    item = f"- {markdown.link(remark.name, remark.url)}: {markdown.text(remark.words)}"
    if remark.diagnosis:
        item += f"  \n  {markdown.text(remark.diagnosis)}"
    return item if remark.check is None else f"{item}\n{markdown.block(remark.check, '  ')}"


def _command(kind: str, message: str, **properties: str) -> str:
    """Return a workflow command; what GitHub would read as its own signs is escaped."""
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {written}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
