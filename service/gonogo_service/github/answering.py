"""The background's part that tells GitHub: a status for each commit_check at its start and its end, a
check run, one comment per pull request.

What is told is read when it is told. Each part is noted as soon as GitHub took it; a process killed
in between tells that part again, which changes nothing: a status of one context replaces the one
before, check run and comment are looked for before they are made.
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

from gonogo_service.github import pulls, reading, report
from gonogo_service.github.access import Access, App, Token, read_key
from gonogo_service.github.client import MOST_ANNOTATIONS, GitHub
from gonogo_service.github.problems import GitHubError, Limited, Refused
from gonogo_service.github.report import Report
from gonogo_service.kit.background_context import AWAY, BackgroundContext
from gonogo_settings import Settings
from gonogo_storage.automation import commit_checks
from gonogo_storage.automation.commit_checks import CommitCheck
from gonogo_storage.db.encoding import encode, utcnow
from gonogo_storage.db.states import AnswerState
from gonogo_storage.messages import github_answers
from gonogo_storage.messages.github_answers import Answer

log = structlog.get_logger("gonogo.github")

DELAYS_S = (5, 30, 300, 1800, 3600, 10800, 21600, 43200)
"""After the first failure, the second, ...; then it is given up, about a day after it began."""
LOOK_AGAIN = timedelta(seconds=5)
"""How soon gauges are looked at again; runs say themselves when they are over."""
MAY_START = timedelta(minutes=1)
"""How soon a commit_check is looked at again that could not be started: its delivery is tried again for
a while."""


class Answerer:
    """Works off what is due in a thread of its own: a GitHub that does not answer must not hold up
    the role's lease.
    """

    def __init__(self, context: BackgroundContext, github: GitHub) -> None:
        self._context, self._github = context, github
        self._thread: threading.Thread | None = None
        self._gone = threading.Event()

    def run_once(self) -> None:
        """Begin with what is due, unless the thread still works."""
        self._gone.clear()
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
        """Another process may answer now: this one stops after the request that is under way."""
        self._gone.set()

    def join(self, timeout_s: float) -> None:
        """Wait for what is under way."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Wait for what is under way, and give back the connections."""
        self.join(timeout_s)
        self._github.close()

    def _work(self, due: list[str]) -> None:
        try:
            for commit_check_id in due:
                if self._stopped():
                    return
                self._answer(commit_check_id)
        except AWAY as problem:
            log.warning(
                "away; GitHub waits for its answers",
                error=(str(problem).splitlines() or [type(problem).__name__])[0],
            )
        except Exception:
            log.exception("an answer failed")

    def _stopped(self) -> bool:
        return self._context.stop.is_set() or self._gone.is_set()

    def _answer(self, commit_check_id: str) -> None:
        """Everything that is to be told of a commit_check now; what can't be told is tried again by
        itself.
        """
        began = time.perf_counter()
        commit_check = self._context.reading(
            lambda session: commit_checks.get(session, commit_check_id)
        )
        answer = self._context.reading(lambda session: github_answers.get(session, commit_check_id))
        if commit_check is None or answer is None or answer.due_at is None:
            return
        problems: list[GitHubError] = []
        look_for_more: list[bool] = []
        if self._context.reading(lambda session: github_answers.superseded(session, commit_check_id)):
            state = AnswerState.superseded
            self._try(problems, lambda: self._close(commit_check, answer))
        else:
            found = self._context.reading(
                lambda session: reading.read(session, commit_check, self._context.settings.url)
            )
            state = AnswerState.reported if found.over else AnswerState.pending
            # of two pull requests with one head the later one has the status; both have their
            # comment
            if self._context.reading(
                lambda session: github_answers.status_taken(session, commit_check_id)
            ):
                self._try(problems, lambda: self._close(commit_check, answer))
                parts: tuple[Callable[[Report, Answer], None], ...] = (self._comment,)
            else:
                parts = (self._status, self._check, self._comment)
            for part in parts:
                if not self._stopped():
                    self._try(problems, partial(part, found, answer))
            if not self._stopped():
                self._try(
                    problems,
                    lambda: look_for_more.append(
                        pulls.find(self._context, self._github, commit_check, over=found.over)
                    ),
                )
        if self._stopped():
            return
        if problems:
            self._postpone(answer, problems)
        else:
            due_at = _looked_at_again(commit_check, state, asks=any(look_for_more))
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
            problems=[str(each) for each in problems],
            ms=took,
        )

    def _try(self, problems: list[GitHubError], tell: Callable[[], None]) -> None:
        try:
            tell()
        except GitHubError as problem:
            problems.append(problem)

    def _postpone(self, answer: Answer, problems: list[GitHubError]) -> None:
        """A limit says itself until when; anything else comes again, later every time."""
        said = "; ".join(dict.fromkeys(str(each) for each in problems))
        limits = [each.until for each in problems if isinstance(each, Limited)]
        if limits:
            again = partial(github_answers.postponed, due_at=max(limits), counts=False)
        else:
            wait = DELAYS_S[answer.tries] if answer.tries < len(DELAYS_S) else None
            again = partial(
                github_answers.postponed,
                due_at=None if wait is None else utcnow() + timedelta(seconds=wait),
            )
        self._context.session(lambda session: again(session, answer.commit_check_id, said))

    def _status(self, found: Report, answer: Answer) -> None:
        digest = _digest(found.status())
        if answer.sent_digests.get("status") != digest:
            self._github.set_status(
                found.commit_check.repository, found.commit_check.head_sha, **found.status()
            )
            self._took(answer, "status", digest)

    def _check(self, found: Report, answer: Answer) -> None:
        digest = _digest({**found.check(), "annotations": found.annotations})
        commit_check = found.commit_check
        if answer.sent_digests.get("check") == digest or not self._github.may_check(
            commit_check.repository
        ):
            return
        fields = found.check()
        number = self._check_of(commit_check, fields["name"], answer)
        if number is None:
            number = self._github.make_check(
                commit_check.repository, {**_begun(fields), "head_sha": commit_check.head_sha}
            )
            self._took(answer, "check", "begun", check_id=number)
        elif not found.over:
            self._github.change_check(commit_check.repository, number, fields)
        if found.over:
            self._annotate(commit_check, number, fields, found.annotations)
        self._took(answer, "check", digest, check_id=number)

    def _check_of(self, commit_check: CommitCheck, name: str, answer: Answer) -> int | None:
        """Our check run: as it was noted, else as GitHub knows it."""
        if answer.check_id is not None:
            return answer.check_id
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
        """Close the check run. GitHub appends annotations: only those that it does not have yet are
        sent, so many at a time.
        """
        there = self._github.annotations_of(commit_check.repository, number)
        first = True
        while first or there < len(annotations):
            batch = annotations[there : there + MOST_ANNOTATIONS]
            output = {**fields["output"], **({"annotations": batch} if batch else {})}
            self._github.change_check(commit_check.repository, number, {**fields, "output": output})
            there, first = there + len(batch), False

    def _comment(self, found: Report, answer: Answer) -> None:
        commit_check = found.commit_check
        if not found.over or commit_check.pull_request is None:
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
                if not any(
                    each.worth for each in reports
                ):  # nothing to say, and nothing said before: no mail to everyone
                    return
                number = self._github.make_comment(repository, pull_request, text)
        self._context.session(
            lambda session: github_answers.commented(
                session, repository, pull_request, number, digest
            )
        )
        self._took(answer, "comment", digest)

    def _rewrite(self, repository: str, number: int, text: str) -> bool:
        """Write our comment anew; False where it is gone, or somebody else's."""
        try:
            self._github.change_comment(repository, number, text)
        except Refused as problem:
            if problem.status not in (403, 404, 410):
                raise
            return False
        return True

    def _close(self, commit_check: CommitCheck, answer: Answer) -> None:
        """A check run whose commit_check was asked for anew must not run for ever."""
        fields = report.superseded(commit_check)
        digest = _digest(fields)
        if (
            answer.check_id is not None
            and answer.state is AnswerState.pending
            and answer.sent_digests.get("check") != digest
        ):
            self._github.change_check(commit_check.repository, answer.check_id, fields)
            self._took(answer, "check", digest)

    def _took(self, answer: Answer, part: str, digest: str, *, check_id: int | None = None) -> None:
        self._context.session(
            lambda session: github_answers.record_accepted(
                session, answer.commit_check_id, part, digest, check_id=check_id
            )
        )


def make(context: BackgroundContext) -> Answerer | None:
    """The answerer of this process; None where no token and no App is set. Raises ValueError for an
    App's key that is none.
    """
    access = access_of(context.settings)
    return None if access is None else Answerer(context, GitHub(context.settings.github_url, access))


def access_of(settings: Settings) -> Access | None:
    """Who we are to GitHub, by the settings: the App where it is installed, else the token. Raises
    ValueError for a key that is none.
    """
    token = (
        None if settings.github_token is None else Token(settings.github_token.get_secret_value())
    )
    if settings.github_app_id is None or settings.github_app_key is None:
        return token
    return App(settings.github_app_id, read_key(settings.github_app_key.get_secret_value()), token)


def _looked_at_again(
    commit_check: CommitCheck, state: AnswerState, *, asks: bool
) -> datetime | None:
    """When there may be more to tell; None: never. `asks`: a pull request of the commit may be
    opened yet.
    """
    now = utcnow()
    if state is AnswerState.pending:
        return now + (LOOK_AGAIN if commit_check.run_id is None else timedelta(0))
    if asks and now < commit_check.created_at + github_answers.YOUNG:
        return now + max(
            MAY_START, now - commit_check.created_at
        )  # twice as late every time: eleven times in a day
    unstarted = (
        state is AnswerState.reported and commit_check.run_id is None and not commit_check.gauges
    )
    return (
        now + MAY_START
        if unstarted and now < commit_check.created_at + github_answers.YOUNG
        else None
    )


def _begun(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A new check run begins as one that runs, so that its annotations can follow before its
    conclusion.
    """
    return {
        **{name: value for name, value in fields.items() if name != "conclusion"},
        "status": "in_progress",
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(encode(value).encode()).hexdigest()
