"""The role that sends answers to GitHub.

An answer is a status for each commit check at its start and end, a check run, and one comment per
pull request. Its content is read when it is sent. Each part is recorded as soon as GitHub accepted
it. A process that is killed in between sends that part again, which changes nothing: a status
replaces the earlier one with the same context, and existing check runs and comments are looked up
before new ones are created.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from gonogo.settings import Settings
from gonogo_service.ci import commit_checks, github_answers
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.ci.github import pulls, reading, report
from gonogo_service.ci.github.access import Access, App, Token, read_key
from gonogo_service.ci.github.client import MAX_ANNOTATIONS, GitHub
from gonogo_service.ci.github.problems import GitHubError, Limited, Refused
from gonogo_service.ci.github.report import Report
from gonogo_service.ci.github_answers import SentAnswer
from gonogo_service.kit.background_context import AWAY, BackgroundContext
from gonogo_service.kit.database.encoding import encode, utcnow
from gonogo_service.kit.database.states import AnswerState

log = structlog.get_logger("gonogo.github")

POLL_GAUGES = timedelta(seconds=5)
"""Poll interval for gauges; runs announce their end."""
MAY_START = timedelta(minutes=1)
"""Delay before a commit check that could not be started is read again.

Its delivery is retried for a while.
"""


class Answerer:
    """Sends due answers in a separate thread, so that a slow GitHub doesn't block the lease."""

    def __init__(self, context: BackgroundContext, github: GitHub) -> None:
        self._context, self._github = context, github
        self._thread: threading.Thread | None = None
        self._lease_lost = threading.Event()

    def run_once(self) -> None:
        """Start sending the due answers, unless the thread is still running."""
        self._lease_lost.clear()
        if self._context.reading(github_answers.any_missing):
            self._context.session(github_answers.create_missing)
        if self._thread is not None and self._thread.is_alive():
            return
        due = self._context.reading(github_answers.due)
        if due:
            self._thread = threading.Thread(
                target=self._work, args=(due,), name="github-answers", daemon=True
            )
            self._thread.start()

    def lost(self) -> None:
        """Stop after the current request, because another process may send answers now."""
        self._lease_lost.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the current requests."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Wait for the current requests, and close the connections."""
        self.join(timeout_s)
        self._github.close()

    def _work(self, due: list[str]) -> None:
        try:
            self._context.handle_each(
                "answer", due, self._answer, github_answers.postponed, stopped=self._stopped
            )
        except AWAY as problem:
            log.warning(
                "database unavailable; answers to GitHub wait",
                error=(str(problem).splitlines() or [type(problem).__name__])[0],
            )

    def _stopped(self) -> bool:
        return self._context.stop.is_set() or self._lease_lost.is_set()

    def _answer(self, commit_check_id: str) -> bool:
        """Send all parts of a commit check's answer; return whether GitHub accepted them.

        Failed parts are retried separately.
        """
        began = time.perf_counter()
        commit_check = self._context.reading(
            lambda session: commit_checks.get(session, commit_check_id)
        )
        answer = self._context.reading(lambda session: github_answers.get(session, commit_check_id))
        if commit_check is None or answer is None or answer.due_at is None:
            return False
        problems: list[GitHubError] = []
        look_for_more: list[bool] = []
        if self._context.reading(
            lambda session: github_answers.superseded(session, commit_check_id)
        ):
            state = AnswerState.superseded
            self._try(problems, lambda: self._close(commit_check, answer))
        else:
            current = self._context.reading(
                lambda session: reading.read(session, commit_check, self._context.settings.url)
            )
            state = AnswerState.reported if current.over else AnswerState.pending
            # two pull requests may have the same head: the later one has the status, and each has
            # its comment
            if self._context.reading(
                lambda session: github_answers.status_taken(session, commit_check_id)
            ):
                self._try(problems, lambda: self._close(commit_check, answer))
                parts: tuple[Callable[[Report, SentAnswer], None], ...] = (self._comment,)
            else:
                parts = (self._status, self._check, self._comment)
            for part in parts:
                if not self._stopped():
                    self._try(problems, partial(part, current, answer))
            if not self._stopped():
                self._try(
                    problems,
                    lambda: look_for_more.append(
                        pulls.find(self._context, self._github, commit_check, over=current.over)
                    ),
                )
        if self._stopped():
            return False
        if problems:
            self._postpone(answer, problems)
        else:
            due_at = _next_check_at(commit_check, state, finds_pulls=any(look_for_more))
            self._context.session(
                partial(
                    github_answers.record_reported,
                    commit_check_id=commit_check_id,
                    state=state,
                    due_at=due_at,
                )
            )
        took = round((time.perf_counter() - began) * 1e3, 1)
        log.info(
            "GitHub",
            commit_check=commit_check_id,
            state=state.value,
            problems=[str(problem) for problem in problems],
            ms=took,
        )
        return not problems

    def _try(self, problems: list[GitHubError], send: Callable[[], None]) -> None:
        try:
            send()
        except GitHubError as problem:
            problems.append(problem)

    def _postpone(self, answer: SentAnswer, problems: list[GitHubError]) -> None:
        """Postpone an answer: until the end of a rate limit, else with a growing delay."""
        message = "; ".join(dict.fromkeys(str(problem) for problem in problems))
        limits = [problem.until for problem in problems if isinstance(problem, Limited)]
        self._context.session(
            partial(
                github_answers.postponed,
                commit_check_id=answer.commit_check,
                error=message,
                limited_until=max(limits, default=None),
            )
        )

    def _status(self, current: Report, answer: SentAnswer) -> None:
        digest = _digest(current.status())
        if answer.sent_digests.get("status") != digest:
            self._github.set_status(
                current.commit_check.repository, current.commit_check.head_sha, **current.status()
            )
            self._took(answer, "status", digest)

    def _check(self, current: Report, answer: SentAnswer) -> None:
        digest = _digest({**current.check(), "annotations": current.annotations})
        commit_check = current.commit_check
        if answer.sent_digests.get("check") == digest or not self._github.may_check(
            commit_check.repository
        ):
            return
        fields = current.check()
        number = self._check_of(commit_check, fields["name"], answer)
        if number is None:
            number = self._github.create_check(
                commit_check.repository,
                {**_in_progress(fields), "head_sha": commit_check.head_sha},
            )
            self._took(answer, "check", "begun", check_id=number)
        elif not current.over:
            self._github.change_check(commit_check.repository, number, fields)
        if current.over:
            self._annotate(commit_check, number, fields, current.annotations)
        self._took(answer, "check", digest, check_id=number)

    def _check_of(self, commit_check: CommitCheck, name: str, answer: SentAnswer) -> int | None:
        """Return the number of our check run, as stored or else as GitHub lists it."""
        if answer.check is not None:
            return answer.check
        return self._github.find_check(
            commit_check.repository, commit_check.head_sha, name=name, external_id=commit_check.id
        )

    def _annotate(
        self,
        commit_check: CommitCheck,
        number: int,
        fields: Mapping[str, Any],
        annotations: tuple[Mapping[str, Any], ...],
    ) -> None:
        """Complete the check run, and send its annotations in batches.

        GitHub appends annotations, so only the missing ones are sent.
        """
        there = self._github.annotations_of(commit_check.repository, number)
        first = True
        while first or there < len(annotations):
            batch = annotations[there : there + MAX_ANNOTATIONS]
            output = {**fields["output"], **({"annotations": batch} if batch else {})}
            self._github.change_check(commit_check.repository, number, {**fields, "output": output})
            there, first = there + len(batch), False

    def _comment(self, current: Report, answer: SentAnswer) -> None:
        commit_check = current.commit_check
        if not current.over or commit_check.pull_request is None:
            return
        reports = self._context.reading(
            lambda session: reading.comment(session, commit_check, self._context.settings.url)
        )
        if not reports:  # of an older commit
            return
        text = report.comment(reports)
        repository, pull_request, digest = (
            commit_check.repository,
            commit_check.pull_request,
            _digest(text),
        )
        known = self._context.reading(
            lambda session: github_answers.comment_of(session, repository, pull_request)
        )
        if known is not None and known[1] == digest:
            return
        number = None if known is None else known[0]
        if number is None or not self._rewrite(repository, number, text):
            number = self._github.find_comment(repository, pull_request, report.MARKER)
            if (
                number is None
                or number == (known or (None,))[0]
                or not self._rewrite(repository, number, text)
            ):
                # without news and without an earlier comment: don't send an email to everyone
                if not any(section.worth for section in reports):
                    return
                number = self._github.create_comment(repository, pull_request, text)
        self._context.session(
            lambda session: github_answers.commented(
                session, repository, pull_request, number, digest
            )
        )
        self._took(answer, "comment", digest)

    def _rewrite(self, repository: str, number: int, text: str) -> bool:
        """Replace the text of our comment; return False if it is gone, or somebody else's."""
        try:
            self._github.change_comment(repository, number, text)
        except Refused as problem:
            if problem.status not in (403, 404, 410):
                raise
            return False
        return True

    def _close(self, commit_check: CommitCheck, answer: SentAnswer) -> None:
        """Close the check run of a superseded commit check, so that it doesn't run forever."""
        fields = report.superseded(commit_check)
        digest = _digest(fields)
        if (
            answer.check is not None
            and answer.state is AnswerState.pending
            and answer.sent_digests.get("check") != digest
        ):
            self._github.change_check(commit_check.repository, answer.check, fields)
            self._took(answer, "check", digest)

    def _took(
        self, answer: SentAnswer, part: str, digest: str, *, check_id: int | None = None
    ) -> None:
        self._context.session(
            lambda session: github_answers.record_accepted(
                session, answer.commit_check, part, digest, check_id=check_id
            )
        )


def client_of(settings: Settings) -> GitHub | None:
    """Return a client for the settings: as the App where it is installed, else with the token.

    Returns None if the settings have neither. Raises ValueError for an invalid App key.
    """
    token = (
        None if settings.github_token is None else Token(settings.github_token.get_secret_value())
    )
    access: Access | None = token
    if settings.github_app_id is not None and settings.github_app_key is not None:
        key = read_key(settings.github_app_key.get_secret_value())
        access = App(settings.github_app_id, key, token)
    return None if access is None else GitHub(settings.github_url, access)


def _next_check_at(
    commit_check: CommitCheck, state: AnswerState, *, finds_pulls: bool
) -> datetime | None:
    """Return the time at which there may be more to send; None: never.

    `finds_pulls` says that a pull request of the commit may still be opened.
    """
    now = utcnow()
    if state is AnswerState.pending:
        return now + (POLL_GAUGES if commit_check.run is None else timedelta(0))
    if finds_pulls and now < commit_check.created_at + github_answers.YOUNG:
        # doubles the delay each time: eleven times in a day
        return now + max(MAY_START, now - commit_check.created_at)
    unstarted = (
        state is AnswerState.reported and commit_check.run is None and not commit_check.gauges
    )
    return (
        now + MAY_START
        if unstarted and now < commit_check.created_at + github_answers.YOUNG
        else None
    )


def _in_progress(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a new check run in progress.

    Its annotations can then be sent before its conclusion.
    """
    return {
        **{name: value for name, value in fields.items() if name != "conclusion"},
        "status": "in_progress",
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(encode(value).encode()).hexdigest()
