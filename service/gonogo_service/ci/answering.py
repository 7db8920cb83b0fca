"""Sends answers to GitHub about commit checks.

An answer is a status for each commit check at its start and end, a check run, and one comment per
pull request. Its content is read when it is sent. Each part is recorded as soon as GitHub accepted
it. A process that is killed in between sends that part again, which changes nothing: a status
replaces the earlier one with the same context, and existing check runs and comments are looked up
before new ones are created.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import structlog
from sqlalchemy.orm import Session

from gonogo_service.ci import answers, commit_checks, incoming, report
from gonogo_service.ci import rules as ci_rules
from gonogo_service.ci.github import PER_PAGE, GitHub, GitHubError, Limited, Refused
from gonogo_service.ci.model import AnswerRow, CommitCheckRow
from gonogo_service.ci.report import Report
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_service.kit.database.encoding import encode, utcnow
from gonogo_service.kit.database.states import AnswerState, HookSource

log = structlog.get_logger("gonogo.github")

POLL_GAUGES = timedelta(seconds=5)
"""Poll interval for gauges; runs announce their end."""
FIND_AGAIN, FIND_UNTIL = timedelta(minutes=1), timedelta(days=1)
"""Pull requests of a pushed commit are looked for again: each time twice as late, for a day."""
MAX_ANNOTATIONS = 50
"""Maximum number per request; further requests append the rest."""
PULL_REQUEST = "pull_request"


@dataclass
class Answerer:
    """Sends one answer at a time. `stopped`: whether no further request may be begun."""

    context: BackgroundContext
    github: GitHub
    stopped: Callable[[], bool] = lambda: False

    def handle(self, commit_check_id: str) -> bool:
        """Send all parts of a commit check's answer. Failed parts are retried separately."""
        began = time.perf_counter()
        url = self.context.settings.url
        due = self.context.reading(lambda session: _read(session, commit_check_id, url))
        if due is None:
            return True
        check, answer, current, parts = due
        state = AnswerState.superseded
        if current is not None:
            state = AnswerState.reported if current.over else AnswerState.pending
        problems: list[GitHubError] = []
        waits_for_pulls = False
        for part in parts:
            if self.stopped():
                return True
            try:
                waits_for_pulls |= part(self, check, answer, current) is True
            except GitHubError as problem:
                problems.append(problem)
        if problems:
            self._postpone(commit_check_id, problems)
        else:
            again_at = None
            if state is AnswerState.pending:
                again_at = utcnow() + POLL_GAUGES if check.run is None else None
            elif waits_for_pulls:
                age = utcnow() - check.created_at
                again_at = utcnow() + max(FIND_AGAIN, age) if age < FIND_UNTIL else None
            self.context.session(
                lambda session: answers.reported(session, commit_check_id, state, again_at=again_at)
            )
        log.info(
            "GitHub",
            commit_check=commit_check_id,
            state=state.value,
            problems=[str(problem) for problem in problems],
            ms=round((time.perf_counter() - began) * 1e3, 1),
        )
        return True

    def _postpone(self, commit_check_id: str, problems: list[GitHubError]) -> None:
        """Postpone an answer: until the end of a rate limit, else with a growing delay."""
        error = "; ".join(dict.fromkeys(map(str, problems)))
        until = max((limit.until for limit in problems if isinstance(limit, Limited)), default=None)
        if until is None:
            self.context.session(partial(AnswerRow.put_off, key=commit_check_id, reason=error))
        else:  # no failed try
            self.context.session(
                lambda session: answers.limited(session, commit_check_id, error, until)
            )

    def _status(self, check: CommitCheckRow, answer: AnswerRow, current: Report) -> None:
        status = current.status()
        if answer.sent_digests.get("status") != (digest := _digest(status)):
            path = f"/statuses/{quote(check.head_sha, safe='')}"
            self.github.call("POST", check.repository, path, status)
            self._accepted(answer, "status", digest)

    def _check(self, check: CommitCheckRow, answer: AnswerRow, current: Report) -> None:
        fields, repository = current.check(), check.repository
        digest = _digest({**fields, "annotations": current.annotations})
        if answer.sent_digests.get("check") == digest or not self.github.may_check(repository):
            return
        number = answer.check or self._find_check(check, fields["name"])
        if number is None:
            # its annotations can be sent before its conclusion
            begun = {name: value for name, value in fields.items() if name != "conclusion"}
            begun |= {"status": "in_progress", "head_sha": check.head_sha}
            number = self.github.create(repository, "/check-runs", begun)
            self._accepted(answer, "check", "begun", check=number)
        elif not current.over:
            self._change_check(repository, number, fields)
        if current.over:
            self._annotate(repository, number, fields, current.annotations)
        self._accepted(answer, "check", digest, check=number)

    def _find_check(self, check: CommitCheckRow, name: str) -> int | None:
        """Return the number of our check run, as GitHub lists it."""
        query = urlencode({"check_name": name, "filter": "all", "per_page": PER_PAGE})
        path = f"/commits/{quote(check.head_sha, safe='')}/check-runs?{query}"
        for page in self.github.pages(check.repository, path):
            for check_run in page.get("check_runs", ()):
                if check_run.get("external_id") == check.id:
                    return int(check_run["id"])
        return None

    def _change_check(self, repository: str, number: int, fields: Mapping[str, Any]) -> None:
        self.github.call("PATCH", repository, f"/check-runs/{number}", fields)

    def _annotate(
        self,
        repository: str,
        number: int,
        fields: Mapping[str, Any],
        annotations: tuple[Mapping[str, Any], ...],
    ) -> None:
        """Complete the check run, and send its annotations in batches.

        GitHub appends annotations, so only the missing ones are sent.
        """
        shown = self.github.call("GET", repository, f"/check-runs/{number}")
        there = int((shown.get("output") or {}).get("annotations_count") or 0)
        first = True
        while first or there < len(annotations):
            batch = annotations[there : there + MAX_ANNOTATIONS]
            output = {**fields["output"], **({"annotations": batch} if batch else {})}
            self._change_check(repository, number, {**fields, "output": output})
            there, first = there + len(batch), False

    def _comment(self, check: CommitCheckRow, answer: AnswerRow, current: Report) -> None:
        repository, pull_request = check.repository, check.pull_request
        if not current.over or pull_request is None:
            return
        reports, known = self.context.reading(
            lambda session: (
                report.of_pull_request(session, check, self.context.settings.url),
                answers.comment_of(session, repository, pull_request),
            )
        )
        if not reports:  # of an older commit
            return
        text = report.comment(reports)
        digest = _digest(text)
        if known is not None and known.digest == digest:
            return
        number = None if known is None else known.comment_id
        if number is None or not self._rewrite(repository, number, text):
            other = self.github.find_comment(repository, pull_request, report.MARKER)
            if other is None or other == number or not self._rewrite(repository, other, text):
                # without news and without an earlier comment: don't send an email to everyone
                if not any(section.worth for section in reports):
                    return
                path = f"/issues/{pull_request}/comments"
                other = self.github.create(repository, path, {"body": text})
            number = other
        written = number
        self.context.session(
            lambda session: answers.commented(session, repository, pull_request, written, digest)
        )
        self._accepted(answer, "comment", digest)

    def _rewrite(self, repository: str, number: int, text: str) -> bool:
        """Replace the text of our comment; return False if it is gone, or somebody else's."""
        try:
            self.github.call("PATCH", repository, f"/issues/comments/{number}", {"body": text})
        except Refused as problem:
            if problem.status not in (403, 404, 410):
                raise
            return False
        return True

    def _close(self, check: CommitCheckRow, answer: AnswerRow, _: Report | None) -> None:
        """Close the check run of a superseded commit check, so that it doesn't run forever."""
        fields = report.superseded(check)
        digest = _digest(fields)
        if answer.check is None or answer.state != AnswerState.pending:
            return
        if answer.sent_digests.get("check") != digest:
            self._change_check(check.repository, answer.check, fields)
            self._accepted(answer, "check", digest)

    def _accepted(
        self, answer: AnswerRow, part: str, digest: str, *, check: int | None = None
    ) -> None:
        self.context.session(
            lambda session: answers.accepted(session, answer.id, part, digest, check=check)
        )

    def _find_pulls(self, check: CommitCheckRow, _: AnswerRow, current: Report) -> bool:
        """Read the open pull requests of a pushed commit, which a push event doesn't name.

        Each is stored as if it had come with a delivery. Returns whether to read them again later:
        people push first, and then open the pull request. While the run is not over, rules for
        pull requests read nothing, because GitHub may still send a delivery.
        """
        if check.pull_request is not None:
            return False
        stored = self.context.reading(lambda session: ci_rules.get(session, check.rule))
        rule = None if stored is None else stored.rule
        if rule is None or not (rule.enabled and rule.pull_requests):
            return False
        if PULL_REQUEST in rule.events and not current.over:
            return False
        path = f"/commits/{quote(check.head_sha, safe='')}/pulls?per_page={PER_PAGE}"
        try:
            pulls = [pull for page in self.github.pages(check.repository, path) for pull in page]
        except Refused as problem:  # a token may set statuses without reading pull requests
            about = {"repository": check.repository, "error": str(problem)}
            log.warning("the pull requests of a commit are unknown", **about)
            return False
        of_commit = [pull for pull in pulls if _is_of(pull, check)]
        for pull in of_commit:
            self.context.session(partial(_store_pull, check=check, pull=pull))
        return not of_commit


Part = Callable[[Answerer, CommitCheckRow, AnswerRow, Any], object]


def _read(
    session: Session, commit_check_id: str, url: str | None
) -> tuple[CommitCheckRow, AnswerRow, Report | None, tuple[Part, ...]] | None:
    """Return what there is to send about a commit check now, and its parts."""
    check = commit_checks.get(session, commit_check_id)
    answer = answers.get(session, commit_check_id)
    if check is None or answer is None or answer.due_at is None:
        return None
    if answers.superseded(session, check):
        return check, answer, None, (Answerer._close,)
    current = report.read(session, check, url)
    # two pull requests may have the same head: the later one has the status, and each its comment
    whole = (Answerer._status, Answerer._check)
    parts = (Answerer._close,) if answers.status_taken(session, check) else whole
    return check, answer, current, (*parts, Answerer._comment, Answerer._find_pulls)


def _is_of(pull: Mapping[str, Any], check: CommitCheckRow) -> bool:
    """Return whether an open pull request of our repository has exactly this head."""
    target = (pull.get("base") or {}).get("repo") or {}
    return (
        pull.get("state") == "open"
        and str(target.get("full_name")).casefold() == check.repository.casefold()
        and (pull.get("head") or {}).get("sha") == check.head_sha
    )


def _store_pull(session: Session, check: CommitCheckRow, pull: Mapping[str, Any]) -> None:
    """Store one delivery per pull request, commit and rule, however often it is found."""
    number, sha = int(pull["number"]), check.head_sha
    if commit_checks.newest_head(session, check.repository, number, check.rule, sha) is not None:
        return
    names = ("number", "updated_at", "head", "base")
    body = {
        "rule": check.rule,
        "head_build": check.head_build,
        "push": check.delivery,
        "pull_request": {name: pull[name] for name in names if name in pull},
        "repository": {"full_name": check.repository},
        "installation": {"id": check.installation},
    }
    name = f"{check.repository}#{number}@{sha} {check.rule}"
    source = HookSource.pull_request_lookup
    incoming.store(session, source, name, PULL_REQUEST, encode(body).encode())


def _digest(value: Any) -> str:
    return hashlib.sha256(encode(value).encode()).hexdigest()
