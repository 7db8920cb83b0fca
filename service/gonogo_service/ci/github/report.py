"""The text of GitHub's answers: pure functions of the comparison of head and base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gonogo.ci.events import BOTH
from gonogo.flakiness.classes import NEW, Class, Finding, file_of
from gonogo.flakiness.grades import Sharpness
from gonogo.reports import markdown
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.ci.github.client import MAX_TEXT, shortened
from gonogo_service.compare.comparing import Compared, Comparison
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.kit.database.states import JobState

State = Literal["pending", "success", "failure", "error"]

MARKER = "<!-- gonogo: the comment of this pull request -->"
NOWHERE = ".github"
"""The path of annotations about kernels, which belong to no file; GitHub requires one."""
MAX_LISTED = 20
MAX_ANNOTATED = 200
MAX_MESSAGE = 4000
QUIET = frozenset({Class.passed})
CONCLUSIONS: Mapping[State, str] = {
    "success": "success",
    "failure": "failure",
    "error": "action_required",
}
"""Required checks treat "neutral" as green, so unknown results ask for a person instead."""
RUN_BOTH = {
    "label": "Run both again",
    "description": "Head and base, on the same builds",
    "identifier": BOTH,
}
STATES: Mapping[int, State] = {0: "success", 1: "failure", 3: "error"}


@dataclass(frozen=True)
class Links:
    """Addresses of pages; None if GONOGO_URL is not set."""

    run: str | None = None
    compare: str | None = None
    job: Callable[[str], str | None] = lambda _: None


@dataclass(frozen=True)
class Report:
    """The answer about one commit check.

    `worth` says whether it is worth a comment on the pull request.
    """

    commit_check: CommitCheck
    state: State
    words: str
    details: str
    url: str | None
    annotations: tuple[Mapping[str, Any], ...] = ()
    worth: bool = True

    @property
    def over(self) -> bool:
        """Return whether the result is final."""
        return self.state != "pending"

    @property
    def context(self) -> str:
        """Return the status' name.

        It has the event's type, so that a push and a pull request of one commit don't overwrite
        each other.
        """
        return shortened(f"gonogo/{_name(self.commit_check)} ({self.commit_check.event})", 255)

    def status(self) -> dict[str, Any]:
        """Return the commit status."""
        return {
            "state": self.state,
            "context": self.context,
            "description": self.words,
            "url": self.url,
        }

    def check(self) -> dict[str, Any]:
        """Return the check run without its annotations."""
        title = shortened(self.words, 255)
        fields: dict[str, Any] = {
            "name": shortened(
                f"GoNoGo: {_name(self.commit_check)} ({self.commit_check.event})", 255
            ),
            "external_id": self.commit_check.id,
            "status": "completed" if self.over else "in_progress",
            "output": {"title": title, "summary": shortened(self.details, MAX_TEXT)},
        }
        if self.over:
            fields["conclusion"] = CONCLUSIONS[self.state]
            if self.commit_check.base_sha is not None:  # GitHub's button runs only the head again
                fields["actions"] = [RUN_BOTH]
        if self.url is not None:
            fields["details_url"] = self.url
        return fields


def running(commit_check: CommitCheck, url: str | None, what: str) -> Report:
    """Return the report of a run in progress."""
    words = f"{what} on {commit_check.head_build or commit_check.head_sha[:12]}: running"
    return Report(commit_check, "pending", words, f"{markdown.text(words)}\n", url, worth=False)


def broken(commit_check: CommitCheck, reason: str) -> Report:
    """Return the report of a commit check that could not be started."""
    words = f"could not be started: {reason}"
    return Report(
        commit_check,
        "error",
        words,
        f"**It could not be started:** {markdown.text(reason)}\n",
        None,
    )


def superseded(commit_check: CommitCheck) -> dict[str, Any]:
    """Return the check run of a commit check that was requested again."""
    output = {
        "title": "Requested again",
        "summary": "The same check was requested again: the newer one counts.",
    }
    return {
        "external_id": commit_check.id,
        "status": "completed",
        "conclusion": "cancelled",
        "output": output,
    }


def compared(
    commit_check: CommitCheck, comparison: Comparison, links: Links, diagnoses: Mapping[str, str]
) -> Report:
    """Return the report of a comparison. `diagnoses`: job -> its diagnosis in words."""
    gate = comparison.gate()
    state = STATES[gate.code]
    words = comparison.words
    lines = list(_sections(comparison, links, diagnoses))
    more = f" · [full comparison]({links.compare})" if links.compare else ""
    note = (
        ""
        if commit_check.base_run or comparison.base.jobs
        else f"\nBase was not run{_why(commit_check)}: what this commit changed is unknown.\n"
    )
    details = f"{markdown.text(words)}{more}\n{note}\n" + "\n".join(lines)
    worth = state != "success" or any(
        finding.kind not in QUIET
        for test in comparison.tests
        for finding in test.classification.findings
    )
    annotations = tuple(_annotations(comparison, diagnoses))[:MAX_ANNOTATED]
    return Report(
        commit_check, state, words, details, links.compare or links.run, annotations, worth
    )


def gauged(
    commit_check: CommitCheck,
    gauges: Sequence[GaugeRow],
    page: Callable[[str], str | None],
) -> Report:
    """Return the report of the rule's gauges. Only unfinished gauges close the gate."""
    ended = [gauge for gauge in gauges if gauge.state is JobState.finished]
    kinds = [gauge.sharpness or Sharpness.unmeasured for gauge in ended]
    counted = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    lost = len(gauges) - len(ended)
    words = ", ".join([*counted, *([f"{lost} without a result"] if lost else [])]) or "no gauge"
    lines = [
        f"- {markdown.link(_gauge_name(gauge), page(gauge.id))}: "
        f"{markdown.text(gauge.words or gauge.error or gauge.state.value)}"
        for gauge in gauges
    ]
    state: State = "error" if lost else "success"
    url = page(gauges[0].id) if len(gauges) == 1 else None
    return Report(
        commit_check,
        state,
        words,
        f"{markdown.text(words)}\n\n" + "\n".join(lines) + "\n",
        url,
        worth=bool(lost) or Sharpness.blunt in kinds,
    )


def _gauge_name(gauge: GaugeRow) -> str:
    return f"{gauge.kernel} " + "x".join(map(str, gauge.test.get("shape", ())))


def comment(reports: Sequence[Report]) -> str:
    """Return the pull request's comment: a section for each suite of its newest commit."""
    commit_check = reports[0].commit_check
    base = (
        ""
        if commit_check.base_sha is None
        else f" against {markdown.code(commit_check.base_sha[:12])}"
    )
    head = (
        f"{MARKER}\n### GoNoGo: {_headline(reports)}\n\n"
        f"{markdown.code(commit_check.head_sha[:12])}{base}\n"
    )
    parts = [
        f"\n#### {markdown.link(_name(report.commit_check), report.url)}\n\n{report.details}"
        for report in reports
    ]
    room = MAX_TEXT - len(head) - 200
    body = ""
    for number, part in enumerate(parts):
        if len(body) + len(part) > room:
            left = len(parts) - number
            body += _cut(part, room - len(body)) + (
                f"\n{left - 1} more suites are left out.\n" if left > 1 else ""
            )
            break
        body += part
    return head + body


def _headline(reports: Sequence[Report]) -> str:
    for state, words in (
        ("failure", "don't merge this as it is"),
        ("error", "some results are unknown"),
        ("pending", "still running"),
    ):
        if any(report.state == state for report in reports):
            return words
    return "nothing new"


def _cut(part: str, room: int) -> str:
    """Return the beginning of a section, cut at the end of an item."""
    beginning = part[: max(0, room)]
    return beginning[: beginning.rfind("\n- ") + 1] + "\nThe rest is too long for a comment.\n"


def _sections(comparison: Comparison, links: Links, diagnoses: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines by class, the most important class first.

    A test appears under each of its findings.
    """
    for kind in Class:
        items = [
            (test, finding)
            for test in comparison.tests
            for finding in test.classification.findings
            if finding.kind is kind
        ]
        if not items or kind in QUIET:
            continue
        yield f"**{kind.label}** ({len(items)}): {kind.sentence}\n"
        for test, finding in items[:MAX_LISTED]:
            yield _item(test, finding, links, diagnoses)
        if len(items) > MAX_LISTED:
            yield f"- and {len(items) - MAX_LISTED} more"
        yield ""


def _item(test: Compared, finding: Finding, links: Links, diagnoses: Mapping[str, str]) -> str:
    job, diagnosis = _job(test), _diagnosis(test, finding, diagnoses)
    name = markdown.link(test.name, None if job is None else links.job(job))
    item = f"- {name}: {markdown.text(finding.words)}"
    item += f"  \n  {markdown.text(diagnosis)}" if diagnosis else ""
    return (
        item
        if test.check is None or finding.kind.is_good or finding.kind is Class.not_run
        else f"{item}\n{markdown.block(test.check, '  ')}"
    )


def _diagnosis(test: Compared, finding: Finding, diagnoses: Mapping[str, str]) -> str:
    """Return the diagnosis of head if the finding is new, else ""."""
    return diagnoses.get(_job(test) or "", "") if finding.kind in (*NEW, Class.unknown) else ""


def _annotations(comparison: Comparison, diagnoses: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for test in comparison.tests:
        for finding in test.classification.findings:
            if finding.kind.level is None:
                continue
            lines = [
                finding.kind.sentence,
                finding.words,
                _diagnosis(test, finding, diagnoses),
                test.check and f"\n{test.check}",
            ]
            yield {
                "path": file_of(test.place.within) or NOWHERE,
                "start_line": 1,
                "end_line": 1,
                "annotation_level": finding.kind.level,
                "title": shortened(f"{finding.kind.label}: {test.name}", 255),
                "message": shortened("\n".join(line for line in lines if line), MAX_MESSAGE),
            }


def _job(test: Compared) -> str | None:
    for side in (test.head, test.base):
        if side is not None and side.jobs:
            return side.jobs[0]
    return None


def _name(commit_check: CommitCheck) -> str:
    return f"{commit_check.rule}/{commit_check.suite or 'gauges'}"


def _why(commit_check: CommitCheck) -> str:
    return f" ({markdown.text(commit_check.error)})" if commit_check.error else ""
