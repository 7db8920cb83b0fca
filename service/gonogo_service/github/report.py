"""What GitHub is told of a commit, in words: pure, from the comparison of head and base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gonogo.ci.events import BOTH
from gonogo.flakiness.classes import Class, Finding
from gonogo_service.github import markdown
from gonogo_service.github.client import MOST_TEXT, shortened
from gonogo_storage.automation.commit_checks import CommitCheck
from gonogo_storage.comparison.comparing import Compared, Comparison

State = Literal["pending", "success", "failure", "error"]

MARKER = "<!-- gonogo: the comment of this pull request -->"
NOWHERE = ".github"
"""The path of annotations about kernels, which no file of the repository holds; GitHub asks for
one."""
MOST_LISTED = 20
MOST_ANNOTATED = 200
MOST_MESSAGE = 4000
QUIET = frozenset({Class.passed})
LEVELS: Mapping[Class, str] = {
    Class.new_failure: "failure",
    Class.new_hollow_pass: "failure",
    Class.unknown: "warning",
    Class.infrastructure: "warning",
    Class.pending: "warning",
    Class.red_but_right: "warning",
    Class.broken_on_base: "notice",
    Class.known_flaky: "notice",
    Class.known_hollow: "notice",
}
"""How loud an annotation is; other classes get none."""
CONCLUSIONS: Mapping[State, str] = {
    "success": "success",
    "failure": "failure",
    "error": "action_required",
}
"""GitHub's required checks take "neutral" for green: what can't be said asks for a person
instead."""
RUN_BOTH = {
    "label": "Run both again",
    "description": "Head and base, on the same builds",
    "identifier": BOTH,
}
STATES: Mapping[int, State] = {0: "success", 1: "failure", 3: "error"}


@dataclass(frozen=True)
class Links:
    """Addresses of pages, None where the service does not know its own (GONOGO_URL)."""

    run: str | None = None
    compare: str | None = None
    job: Callable[[str], str | None] = lambda _: None


@dataclass(frozen=True)
class Report:
    """All that is told about one commit_check. `worth`: whether a pull request's comment has anything to
    say of it.
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
        """Whether it is the last word."""
        return self.state != "pending"

    @property
    def context(self) -> str:
        """The status' name, with the kind of event: a push and a pull request of one commit don't
        overwrite each other.
        """
        return shortened(f"gonogo/{_name(self.commit_check)} ({self.commit_check.event})", 255)

    def status(self) -> dict[str, Any]:
        """The commit status."""
        return {
            "state": self.state,
            "context": self.context,
            "description": self.words,
            "url": self.url,
        }

    def check(self) -> dict[str, Any]:
        """The check run without its annotations."""
        title = shortened(self.words, 255)
        found: dict[str, Any] = {
            "name": shortened(
                f"GoNoGo: {_name(self.commit_check)} ({self.commit_check.event})", 255
            ),
            "external_id": self.commit_check.id,
            "status": "completed" if self.over else "in_progress",
            "output": {"title": title, "summary": shortened(self.details, MOST_TEXT)},
        }
        if self.over:
            found["conclusion"] = CONCLUSIONS[self.state]
            if (
                self.commit_check.base_sha is not None
            ):  # GitHub's own button runs the head alone again
                found["actions"] = [RUN_BOTH]
        if self.url is not None:
            found["details_url"] = self.url
        return found


def running(commit_check: CommitCheck, url: str | None, what: str) -> Report:
    """It runs."""
    words = f"{what} on {commit_check.head_build or commit_check.head_sha[:12]}: running"
    return Report(commit_check, "pending", words, f"{markdown.text(words)}\n", url, worth=False)


def broken(commit_check: CommitCheck, reason: str) -> Report:
    """It could not be started."""
    words = f"could not be started: {reason}"
    return Report(
        commit_check,
        "error",
        words,
        f"**It could not be started:** {markdown.text(reason)}\n",
        None,
    )


def superseded(commit_check: CommitCheck) -> dict[str, Any]:
    """What becomes of a check run whose commit_check was asked for anew."""
    output = {
        "title": "asked for again",
        "summary": "The same was asked for again: the newer check counts.",
    }
    return {
        "external_id": commit_check.id,
        "status": "completed",
        "conclusion": "cancelled",
        "output": output,
    }


def compared(
    commit_check: CommitCheck, found: Comparison, links: Links, diagnoses: Mapping[str, str]
) -> Report:
    """What came of it. `diagnoses`: job -> what its numbers show, in words."""
    gate = found.gate()
    state = STATES[gate.code]
    words = found.words
    lines = list(_sections(found, links, diagnoses))
    more = f" · [all of it]({links.compare})" if links.compare else ""
    note = (
        ""
        if commit_check.base_run_id or found.base.jobs
        else f"\nBase was not run{_why(commit_check)}: nobody can say what this commit did.\n"
    )
    details = f"{markdown.text(words)}{more}\n{note}\n" + "\n".join(lines)
    worth = state != "success" or any(
        each.kind not in QUIET for test in found.tests for each in test.classification.findings
    )
    annotations = tuple(_annotations(found, diagnoses))[:MOST_ANNOTATED]
    return Report(
        commit_check, state, words, details, links.compare or links.run, annotations, worth
    )


def gauged(
    commit_check: CommitCheck,
    gauges: Sequence[Mapping[str, Any]],
    page: Callable[[str], str | None],
) -> Report:
    """What the rule's gauges measured: no gate, but for gauges that did not come to an end."""
    ended = [each for each in gauges if each["state"] == "finished"]
    kinds = [str(each["sharpness"] or "unmeasured") for each in ended]
    counted = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    lost = len(gauges) - len(ended)
    words = ", ".join([*counted, *([f"{lost} without a result"] if lost else [])]) or "no gauge"
    lines = [
        f"- {markdown.link(each['kernel'] + ' ' + 'x'.join(map(str, each['test'].get('shape', ()))), page(each['id']))}: "
        f"{markdown.text(str(each['words'] or each['error'] or each['state']))}"
        for each in gauges
    ]
    state: State = "error" if lost else "success"
    url = page(str(gauges[0]["id"])) if len(gauges) == 1 else None
    return Report(
        commit_check,
        state,
        words,
        f"{markdown.text(words)}\n\n" + "\n".join(lines) + "\n",
        url,
        worth=bool(lost) or "blunt" in kinds,
    )


def comment(reports: Sequence[Report]) -> str:
    """The pull request's comment: a section for each suite of its newest commit."""
    commit_check = reports[0].commit_check
    base = (
        ""
        if commit_check.base_sha is None
        else f" against {markdown.code(commit_check.base_sha[:12])}"
    )
    head = f"{MARKER}\n### GoNoGo: {_headline(reports)}\n\n{markdown.code(commit_check.head_sha[:12])}{base}\n"
    parts = [
        f"\n#### {markdown.link(_name(each.commit_check), each.url)}\n\n{each.details}"
        for each in reports
    ]
    room = MOST_TEXT - len(head) - 200
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
        ("failure", "this must not be merged as it is"),
        ("error", "not everything can be said"),
        ("pending", "still running"),
    ):
        if any(each.state == state for each in reports):
            return words
    return "nothing new"


def _cut(part: str, room: int) -> str:
    """The beginning of a section, at the end of an item."""
    kept = part[: max(0, room)]
    return kept[: kept.rfind("\n- ") + 1] + "\nThe rest is too long for a comment.\n"


def _sections(found: Comparison, links: Links, diagnoses: Mapping[str, str]) -> Iterator[str]:
    """A class at a time, what people want to read first comes first; a test is named under each of
    its findings.
    """
    for kind in Class:
        items = [
            (test, each)
            for test in found.tests
            for each in test.classification.findings
            if each.kind is kind
        ]
        if not items or kind in QUIET:
            continue
        yield f"**{kind.words}** ({len(items)}): {kind.sentence}\n"
        for test, each in items[:MOST_LISTED]:
            yield _item(test, each, links, diagnoses)
        if len(items) > MOST_LISTED:
            yield f"- and {len(items) - MOST_LISTED} more"
        yield ""


def _item(test: Compared, finding: Finding, links: Links, diagnoses: Mapping[str, str]) -> str:
    job, told = _job(test), _told(test, finding, diagnoses)
    said = f"- {markdown.link(test.name, None if job is None else links.job(job))}: {markdown.text(finding.words)}"
    said += f"  \n  {markdown.text(told)}" if told else ""
    return (
        said
        if test.check is None or finding.kind in _GOOD
        else f"{said}\n{markdown.block(test.check, '  ')}"
    )


def _told(test: Compared, finding: Finding, diagnoses: Mapping[str, str]) -> str:
    """What the numbers of head show, where they are news."""
    return (
        diagnoses.get(_job(test) or "", "")
        if finding.kind in (Class.new_failure, Class.new_hollow_pass, Class.unknown)
        else ""
    )


_GOOD = frozenset({Class.fixed, Class.no_longer_hollow, Class.passed, Class.not_run})


def _annotations(found: Comparison, diagnoses: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for test in found.tests:
        for each in test.classification.findings:
            if each.kind not in LEVELS:
                continue
            lines = [
                each.kind.sentence,
                each.words,
                _told(test, each, diagnoses),
                test.check and f"\n{test.check}",
            ]
            yield {
                "path": _path(test),
                "start_line": 1,
                "end_line": 1,
                "annotation_level": LEVELS[each.kind],
                "title": shortened(f"{each.kind.words}: {test.name}", 255),
                "message": shortened("\n".join(line for line in lines if line), MOST_MESSAGE),
            }


def _path(test: Compared) -> str:
    """The file of a pytest test ("tests/test_x.py::test_y"), else a place that stands for none."""
    file, mark, _ = test.place.within.partition("::")
    return (
        file
        if mark
        and file.endswith(".py")
        and not file.startswith("/")
        and ".." not in file.split("/")
        else NOWHERE
    )


def _job(test: Compared) -> str | None:
    for side in (test.head, test.base):
        if side is not None and side.jobs:
            return side.jobs[0]
    return None


def _name(commit_check: CommitCheck) -> str:
    return f"{commit_check.rule}/{commit_check.suite or 'gauges'}"


def _why(commit_check: CommitCheck) -> str:
    return f" ({markdown.text(commit_check.error)})" if commit_check.error else ""
