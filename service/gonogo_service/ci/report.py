"""The texts of GitHub's answers: read from the database, worded from the comparison with base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.ci.events import BOTH
from gonogo.errors import FieldError
from gonogo.flakiness.classes import NEW, Class, Finding, file_of
from gonogo.flakiness.grades import Sharpness
from gonogo.reports import markdown
from gonogo_service.ci import commit_checks
from gonogo_service.ci.github import shortened
from gonogo_service.ci.model import CommitCheckRow
from gonogo_service.compare import comparing
from gonogo_service.compare.compared import Compared
from gonogo_service.compare.comparing import Comparison
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.states import JobState
from gonogo_service.suites import runs

State = Literal["pending", "success", "failure", "error"]
Page = Callable[[str], str | None]
"""From a path to the address of its page; None where GONOGO_URL is not set."""

MARKER = "<!-- gonogo: the comment of this pull request -->"
NO_BASE = "no base"
"""A build that never ran: failures on head are then unknown."""
NOWHERE = ".github"
"""The path of annotations about kernels, which belong to no file; GitHub requires one."""
MAX_DIAGNOSED, MAX_LISTED, MAX_ANNOTATED = 20, 20, 200
MAX_NAME, MAX_DESCRIPTION, MAX_MESSAGE, MAX_TEXT = 255, 140, 4000, 65_535
"""Characters that GitHub takes, and ours of an annotation."""
NEWS = (*NEW, Class.unknown)
"""Findings with a diagnosis."""
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
class Report:
    """The answer about one commit check.

    `worth` says whether it is worth a comment on the pull request.
    """

    commit_check: CommitCheckRow
    state: State
    words: str
    details: str
    url: str | None = None
    annotations: tuple[Mapping[str, Any], ...] = ()
    worth: bool = True

    @property
    def over(self) -> bool:
        """Return whether the result is final."""
        return self.state != "pending"

    def status(self) -> dict[str, Any]:
        """Return the commit status.

        Its name has the event's type, so that a push and a pull request of one commit don't
        overwrite each other.
        """
        check = self.commit_check
        status = {
            "state": self.state,
            "context": shortened(f"gonogo/{_name(check)} ({check.event})", MAX_NAME),
            "description": shortened(self.words, MAX_DESCRIPTION),
        }
        return status if self.url is None else {**status, "target_url": self.url}

    def check(self) -> dict[str, Any]:
        """Return the check run without its annotations."""
        check = self.commit_check
        summary = shortened(self.details, MAX_TEXT)
        fields: dict[str, Any] = {
            "name": shortened(f"GoNoGo: {_name(check)} ({check.event})", MAX_NAME),
            "external_id": check.id,
            "status": "completed" if self.over else "in_progress",
            "output": {"title": shortened(self.words, MAX_NAME), "summary": summary},
        }
        if self.over:
            fields["conclusion"] = CONCLUSIONS[self.state]
            if check.base_sha is not None:  # GitHub's button runs only the head again
                fields["actions"] = [RUN_BOTH]
        return fields if self.url is None else {**fields, "details_url": self.url}


def read(session: Session, check: CommitCheckRow, base_url: str | None) -> Report:
    """Return the report as of now: running, not started, or finished."""
    root = (base_url or "").rstrip("/")

    def page(path: str) -> str | None:
        return root + path if root else None

    if check.suite is None and check.gauges:
        stored_gauges = [session.get(GaugeRow, gauge_id) for gauge_id in check.gauges]
        return gauged(check, [gauge for gauge in stored_gauges if gauge is not None], page)
    if check.run is None:
        return broken(check, check.error or "the rule named nothing to run")
    for run_id in (check.run, check.base_run):
        stored = None if run_id is None else runs.get(session, run_id)
        if stored is not None and not stored[0].state.final:
            what = f"{stored[0].jobs.total} tests" if run_id == check.run else "base"
            return running(check, what, page(urls.run(check.run)))
    head = _side(check.head_build, check.run)
    base = check.base_build or NO_BASE
    base = base if check.base_run is None else _side(check.base_build, check.base_run)
    try:
        comparison = comparing.compare(session, base, head)
        tests = comparing.with_checks(session, comparison, comparison.tests)
    except FieldError as problem:
        return broken(check, f"head and base can't be compared: {problem}")
    comparison = replace(comparison, tests=tuple(tests))
    compared_at = urls.run(check.run) if base == NO_BASE else urls.compare(base, head)
    return compared(check, comparison, _diagnoses(session, comparison), page, page(compared_at))


def of_pull_request(session: Session, check: CommitCheckRow, base_url: str | None) -> list[Report]:
    """Return the sections of the pull request's comment: one per suite of its newest commit.

    Returns nothing if the newest commit is a different one by now.
    """
    assert check.pull_request is not None
    newest = commit_checks.of_pull_request(session, check.repository, check.pull_request)
    if not newest or newest[0].head_sha != check.head_sha:
        return []
    return [read(session, newer, base_url) for newer in newest]


def running(check: CommitCheckRow, what: str, url: str | None) -> Report:
    """Return the report of a run in progress."""
    words = f"{what} on {check.head_build or check.head_sha[:12]}: running"
    return Report(check, "pending", words, f"{markdown.text(words)}\n", url, worth=False)


def broken(check: CommitCheckRow, reason: str) -> Report:
    """Return the report of a commit check that could not be started."""
    details = f"**It could not be started:** {markdown.text(reason)}\n"
    return Report(check, "error", f"could not be started: {reason}", details)


def superseded(check: CommitCheckRow) -> dict[str, Any]:
    """Return the check run of a commit check that was requested again."""
    summary = "The same check was requested again: the newer one counts."
    return {
        "external_id": check.id,
        "status": "completed",
        "conclusion": "cancelled",
        "output": {"title": "Requested again", "summary": summary},
    }


def compared(
    check: CommitCheckRow,
    comparison: Comparison,
    diagnoses: Mapping[str, str],
    page: Page,
    url: str | None,
) -> Report:
    """Return the report of a comparison. `diagnoses`: job -> its diagnosis in words."""
    state = STATES[comparison.gate().code]
    more, note = "", ""
    if url is not None and (check.base_run or check.base_build):
        more = f" · [full comparison]({url})"
    if not check.base_run and not comparison.base.jobs:
        why = f" ({markdown.text(check.error)})" if check.error else ""
        note = f"\nBase was not run{why}: what this commit changed is unknown.\n"
    sections = "\n".join(_sections(comparison, diagnoses, page))
    details = f"{markdown.text(comparison.words)}{more}\n{note}\n{sections}"
    findings = [finding for test in comparison.tests for finding in test.classification.findings]
    worth = state != "success" or any(finding.kind is not Class.passed for finding in findings)
    annotations = tuple(_annotations(comparison, diagnoses))[:MAX_ANNOTATED]
    return Report(check, state, comparison.words, details, url, annotations, worth)


def gauged(check: CommitCheckRow, measured: Sequence[GaugeRow], page: Page) -> Report:
    """Return the report of the rule's gauges. Only unfinished gauges close the gate."""
    if any(not gauge.state.final for gauge in measured):
        return running(check, f"{len(measured)} gauges", None)
    ended = [gauge for gauge in measured if gauge.state is JobState.finished]
    kinds = [gauge.sharpness or Sharpness.unmeasured for gauge in ended]
    counted = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    lost = len(measured) - len(ended)
    words = ", ".join([*counted, *([f"{lost} without a result"] if lost else [])]) or "no gauge"
    lines = [f"{markdown.text(words)}\n"]
    for gauge in measured:
        name = f"{gauge.kernel} " + "x".join(map(str, gauge.test.get("shape", ())))
        result = markdown.text(gauge.words or gauge.error or gauge.state.value)
        lines.append(f"- {markdown.link(name, page(urls.gauge(gauge.id)))}: {result}")
    url = page(urls.gauge(measured[0].id)) if len(measured) == 1 else None
    worth = bool(lost) or Sharpness.blunt in kinds
    state: State = "error" if lost else "success"
    return Report(check, state, words, "\n".join(lines) + "\n", url, worth=worth)


def comment(reports: Sequence[Report]) -> str:
    """Return the pull request's comment: a section for each suite of its newest commit."""
    check = reports[0].commit_check
    base = "" if check.base_sha is None else f" against {markdown.code(check.base_sha[:12])}"
    head = f"{MARKER}\n### GoNoGo: {_headline(reports)}\n\n"
    head += f"{markdown.code(check.head_sha[:12])}{base}\n"
    room = MAX_TEXT - len(head) - 200
    body = ""
    for number, report in enumerate(reports):
        name = markdown.link(_name(report.commit_check), report.url)
        part = f"\n#### {name}\n\n{report.details}"
        if len(body) + len(part) > room:
            beginning = part[: max(0, room - len(body))]
            body += beginning[: beginning.rfind("\n- ") + 1]  # the end of an item
            body += "\nThe rest is too long for a comment.\n"
            left = len(reports) - number - 1
            return head + body + (f"\n{left} more suites are left out.\n" if left else "")
        body += part
    return head + body


def _headline(reports: Sequence[Report]) -> str:
    states = {report.state for report in reports}
    for state, words in (
        ("failure", "don't merge this as it is"),
        ("error", "some results are unknown"),
        ("pending", "still running"),
    ):
        if state in states:
            return words
    return "nothing new"


def _sections(comparison: Comparison, diagnoses: Mapping[str, str], page: Page) -> Iterator[str]:
    """Yield the lines by class, the most important class first.

    A test appears under each of its findings.
    """
    for kind in Class:
        items = [
            (test, finding)
            for test in comparison.tests
            for finding in test.classification.findings
            if finding.kind is kind and kind is not Class.passed
        ]
        if items:
            yield f"**{kind.label}** ({len(items)}): {kind.sentence}\n"
            yield from (
                _item(test, finding, diagnoses, page) for test, finding in items[:MAX_LISTED]
            )
            yield f"- and {len(items) - MAX_LISTED} more\n" if len(items) > MAX_LISTED else ""


def _item(test: Compared, finding: Finding, diagnoses: Mapping[str, str], page: Page) -> str:
    job, diagnosis = _job(test), _diagnosis(test, finding, diagnoses)
    name = markdown.link(test.name, None if job is None else page(urls.job(job)))
    item = f"- {name}: {markdown.text(finding.words)}"
    item += f"  \n  {markdown.text(diagnosis)}" if diagnosis else ""
    kind = finding.kind
    hide = test.check is None or kind.is_good or kind is Class.not_run
    return item if hide else f"{item}\n{markdown.block(test.check or '', '  ')}"


def _annotations(comparison: Comparison, diagnoses: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for test in comparison.tests:
        for finding in test.classification.findings:
            if finding.kind.level is not None:
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
                    "title": shortened(f"{finding.kind.label}: {test.name}", MAX_NAME),
                    "message": shortened("\n".join(filter(None, lines)), MAX_MESSAGE),
                }


def _diagnoses(session: Session, comparison: Comparison) -> dict[str, str]:
    """Return job -> diagnosis for the tests that matter most."""
    diagnoses: dict[str, str] = {}
    for test in comparison.of(*NEWS)[:MAX_DIAGNOSED]:
        for job_id in test.head.jobs[:1] if test.head is not None else ():
            job = jobs.get(session, job_id)
            if job is not None and job.diagnosis_words:
                diagnoses[job_id] = job.diagnosis_words
    return diagnoses


def _diagnosis(test: Compared, finding: Finding, diagnoses: Mapping[str, str]) -> str:
    """Return the diagnosis of head if the finding is new, else ""."""
    return diagnoses.get(_job(test) or "", "") if finding.kind in NEWS else ""


def _job(test: Compared) -> str | None:
    sides = (side for side in (test.head, test.base) if side is not None and side.jobs)
    return next((side.jobs[0] for side in sides), None)


def _side(build: str | None, run_id: str) -> str:
    return run_id if build is None else f"{build}@{run_id}"


def _name(check: CommitCheckRow) -> str:
    return f"{check.rule}/{check.suite or 'gauges'}"
