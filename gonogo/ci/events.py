"""What a delivery says of a commit: GitHub's payloads and those of other CI systems in one form.

Sources: GitHub's "Webhook events and payloads" for push, pull_request, workflow_run, check_suite
and check_run. Every other event, and what in these says nothing about a commit to test (a tag, a
deleted branch), is Ignored with a reason, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields

GITHUB = ("push", "pull_request", "workflow_run", "check_suite")
"""Events that a rule may name."""
CHECK_RUN = "check_run"
TAKEN = (*GITHUB, CHECK_RUN)
"""Events from which something may follow: a check run says that somebody wants one of ours again,
which needs no rule of its own."""
COMMIT = "commit"
"""The event of other CI systems."""
AGAIN = "rerequested"
FOUND = "found"
"""The action of a pull request that GitHub was asked for, as nothing had told of it."""
BOTH = "gonogo-both"
"""The button on our check runs that asks for head and base once more."""
SHA = re.compile(r"[0-9a-f]{7,64}")
REPOSITORY = re.compile(r"(?!\.)[A-Za-z0-9._-]+(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)*")
BRANCH = "refs/heads/"
MOST_PATHS = 20_000
MOST_COMMITS = 2048
"""GitHub tells of so many commits of a push at most."""
MOST_TEXT = 500
MOST_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class CommitEvent:
    """Something happened to a commit."""

    event: str
    repository: str
    """"owner/name"; of a pull request the repository that it is made to."""
    head_sha: str
    base_sha: str | None = None
    """What the head is compared with: the commit before a push, the tip of the branch that a pull
    request is made to."""
    action: str | None = None
    branch: str | None = None
    """That was pushed to, or that the pull request is made to."""
    pull_request: int | None = None
    fork: bool = False
    """The commit comes from a repository that others may write to, or nobody knows where from."""
    paths: tuple[str, ...] | None = None
    """What changed between base and head; None: the delivery does not say."""
    occurred_at: datetime | None = None
    """By the sender's clock."""
    installation: int | None = None
    """Of the GitHub App that was told."""
    workflow: str | None = None
    """Of workflow_run: its name; of check_suite: the App that it is of."""
    conclusion: str | None = None
    again: bool = False
    """A person asked for it once more: nothing that ran before for the head will do."""
    again_base: bool = False
    """Nor for the base."""
    rule: str | None = None
    """The one rule that it is for; None: every rule that fits."""
    head_build: str | None = None
    base_build: str | None = None
    """Named by other CI systems; else the rule says which builds the commits are."""


@dataclass(frozen=True)
class Ignored:
    """Nothing is to be done, and why."""

    reason: str
    repository: str | None = None


@dataclass(frozen=True)
class Rerequest:
    """Somebody asks at GitHub for a check run of an App once more, or for all of them on a
    commit.
    """

    repository: str
    head_sha: str
    app: tuple[str, ...]
    """By which the App whose check it is may be known: its number, its client id."""
    slug: str
    check: str | None = None
    """The id that the App gave its check run; None: all of the commit's."""
    both: bool = False
    """Base as well."""
    installation: int | None = None
    otherwise: CommitEvent | None = None
    """What a check suite says to rules that speak of check suites."""


def from_github(event: str, payload: object) -> CommitEvent | Rerequest | Ignored:
    """What GitHub's payload of that event (`X-GitHub-Event`) says.

    Raises FieldError where one of TAKEN has not the form that it has.
    """
    data = fields.mapping(payload, "body")
    read = _READERS.get(event)
    if read is None:
        return Ignored(
            f"nothing follows from the event {event[:100]!r}", _named(data.get("repository"))
        )
    return read(data)


def from_ci(payload: object) -> CommitEvent | Ignored:
    """What another CI system says: {"type": "commit", "data": {"repository", "sha", ...}}.

    Raises FieldError.
    """
    message = fields.mapping(payload, "body")
    kind = message.get("type")
    if not isinstance(kind, str):
        raise FieldError("type", kind, "must be text", limit=COMMIT)
    if kind != COMMIT:
        return Ignored(f"nothing follows from the type {kind[:100]!r}")
    data = fields.mapping(message.get("data"), "data")
    names = (
        "repository",
        "sha",
        "base",
        "branch",
        "pull_request",
        "fork",
        "paths",
        "builds",
        "action",
        "again",
    )
    fields.known(data, names, "data")
    builds = fields.mapping(data.get("builds") or {}, "data.builds")
    fields.known(builds, ("head", "base"), "data.builds")
    number = data.get("pull_request")
    base = data.get("base")
    return CommitEvent(
        event=COMMIT,
        repository=_repository(data.get("repository"), "data.repository"),
        head_sha=_sha(data.get("sha"), "data.sha"),
        base_sha=None if base is None else _sha(base, "data.base"),
        action=_text(data, "action", "data"),
        branch=_text(data, "branch", "data"),
        pull_request=None
        if number is None
        else fields.integer(number, "data.pull_request", least=1, most=MOST_NUMBER),
        fork=_flag(data, "fork"),
        paths=_paths(data.get("paths")),
        occurred_at=_moment(message.get("timestamp")),
        again=_flag(data, "again"),
        head_build=_text(builds, "head", "data.builds"),
        base_build=_text(builds, "base", "data.builds"),
    )


def from_asked(payload: object) -> CommitEvent:
    """Return a pull request of a pushed commit, as GitHub was asked for it: {"rule", "head_build",
    "pull_request", ...}. Raises FieldError.
    """
    data = fields.mapping(payload, "body")
    found = _pull_request({**data, "action": FOUND})
    return replace(found, rule=_text(data, "rule", ""), head_build=_text(data, "head_build", ""))


def _push(data: Mapping[str, Any]) -> CommitEvent | Ignored:
    repository = _repository(_inner(data, "repository").get("full_name"), "repository.full_name")
    ref = data.get("ref")
    if not isinstance(ref, str) or not ref.startswith(BRANCH):
        return Ignored(f"a push to {str(ref)[:100]}, which is no branch", repository)
    after = data.get("after")
    if data.get("deleted") or _nothing(after):
        return Ignored(f"the branch {ref.removeprefix(BRANCH)[:100]} was deleted", repository)
    before = data.get("before")
    commits = data.get("commits")
    paths: set[str] | None = None
    # a new branch and a forced push tell of some of the commits only, and so does a very large one
    if (
        isinstance(commits, list)
        and 0 < len(commits) < MOST_COMMITS
        and not (data.get("created") or data.get("forced"))
    ):
        told = (
            _inner({"commit": each}, "commit").get(kind) or ()
            for each in commits
            for kind in ("added", "modified", "removed")
        )
        paths = {path for found in told for path in found if isinstance(path, str)}
    return CommitEvent(
        event="push",
        repository=repository,
        head_sha=_sha(after, "after"),
        base_sha=None if _nothing(before) else _sha(before, "before"),
        branch=ref.removeprefix(BRANCH),
        paths=None if paths is None else tuple(sorted(paths)),
        occurred_at=_moment(_inner(data, "repository").get("pushed_at"))
        or _moment(_inner(data, "head_commit").get("timestamp")),
        installation=_installation(data),
    )


def _pull_request(data: Mapping[str, Any]) -> CommitEvent:
    request = _inner(data, "pull_request")
    head, base = _inner(request, "head"), _inner(request, "base")
    repository = _repository(_inner(data, "repository").get("full_name"), "repository.full_name")
    return CommitEvent(
        event="pull_request",
        repository=repository,
        head_sha=_sha(head.get("sha"), "pull_request.head.sha"),
        base_sha=_sha(base.get("sha"), "pull_request.base.sha"),
        action=_text(data, "action", ""),
        branch=_text(base, "ref", "pull_request.base"),
        pull_request=fields.integer(
            request.get("number", data.get("number")),
            "pull_request.number",
            least=1,
            most=MOST_NUMBER,
        ),
        fork=_foreign(head, base),
        occurred_at=_moment(request.get("updated_at")),
        installation=_installation(data),
    )


def _workflow_run(data: Mapping[str, Any]) -> CommitEvent | Ignored:
    run = _inner(data, "workflow_run")
    own, whose = _inner(data, "repository"), _inner(run, "head_repository")
    return _about(
        data, run, own, fork=not _same(whose, own), workflow=run.get("name"), where="workflow_run"
    )


def _check_suite(data: Mapping[str, Any]) -> CommitEvent | Rerequest:
    suite = _inner(data, "check_suite")
    # GitHub gives no branch for a commit that is on none of this repository's: it was pushed to a
    # fork
    fork = not isinstance(suite.get("head_branch"), str)
    found = _about(
        data,
        suite,
        _inner(data, "repository"),
        fork=fork,
        workflow=_inner(suite, "app").get("slug"),
        where="check_suite",
    )
    return _rerequest(data, suite, "check_suite", otherwise=found) if found.again else found


def _check_run(data: Mapping[str, Any]) -> Rerequest | Ignored:
    run, action = _inner(data, "check_run"), _text(data, "action", "")
    pressed = _inner(data, "requested_action").get("identifier")
    if action != AGAIN and (action != "requested_action" or pressed != BOTH):
        said = (
            f"a check run's button {str(pressed)[:40]!r}"
            if action == "requested_action"
            else f"a check run that was {str(action)[:40]}"
        )
        return Ignored(f"nothing follows from {said}", _named(data.get("repository")))
    check = run.get("external_id")
    return _rerequest(
        data, run, "check_run", check=check if isinstance(check, str) else "", both=pressed == BOTH
    )


def _rerequest(
    data: Mapping[str, Any], told: Mapping[str, Any], where: str, **more: Any
) -> Rerequest:
    app = _inner(told, "app")
    return Rerequest(
        repository=_repository(_inner(data, "repository").get("full_name"), "repository.full_name"),
        head_sha=_sha(told.get("head_sha"), f"{where}.head_sha"),
        app=tuple(str(app[name]) for name in ("id", "client_id") if app.get(name)),
        slug=_plain(app.get("slug")) or "unknown",
        installation=_installation(data),
        **more,
    )


def _about(
    data: Mapping[str, Any],
    told: Mapping[str, Any],
    own: Mapping[str, Any],
    *,
    fork: bool,
    workflow: object,
    where: str,
) -> CommitEvent:
    """What workflow_run and check_suite have in common.

    Of several pull requests with this head it is the first one's.
    """
    # also those are listed that are made from here to another repository, whose numbers mean others
    # here
    listed = (each for each in told.get("pull_requests") or () if isinstance(each, Mapping))
    requests = [each for each in listed if _same(_inner(_inner(each, "base"), "repo"), own)]
    first = requests[0] if requests else {}
    head, base = _inner(first, "head"), _inner(first, "base")
    number = first.get("number")
    action = _text(data, "action", "")
    before = base.get("sha") if requests else told.get("before")
    return CommitEvent(
        event=where,
        repository=_repository(own.get("full_name"), "repository.full_name"),
        head_sha=_sha(told.get("head_sha"), f"{where}.head_sha"),
        base_sha=None if _nothing(before) else _sha(before, f"{where}.before"),
        action=action,
        branch=_text(base, "ref", where) if requests else _text(told, "head_branch", where),
        pull_request=None
        if number is None
        else fields.integer(number, f"{where}.pull_requests.0.number", least=1, most=MOST_NUMBER),
        fork=fork or (bool(requests) and _foreign(head, base)),
        # when it was made: it may change long after a newer commit came
        occurred_at=_moment(told.get("created_at")),
        installation=_installation(data),
        workflow=_plain(workflow),
        conclusion=_plain(told.get("conclusion")),
        again=action == AGAIN,
    )


_READERS: dict[str, Callable[[Mapping[str, Any]], CommitEvent | Rerequest | Ignored]] = {
    "push": _push,
    "pull_request": _pull_request,
    "workflow_run": _workflow_run,
    "check_suite": _check_suite,
    "check_run": _check_run,
}


def _inner(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def _named(repository: object) -> str | None:
    found = repository.get("full_name") if isinstance(repository, Mapping) else None
    return found if isinstance(found, str) and len(found) <= MOST_TEXT else None


def _plain(value: object) -> str | None:
    """Return a text that anyone may have chosen, without what is not printable."""
    return (
        "".join(each for each in value[:MOST_TEXT] if each.isprintable())
        if isinstance(value, str)
        else None
    )


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("id") is not None and one.get("id") == other.get("id")


def _foreign(head: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Return whether a pull request comes from another repository than it is made to; a head whose
    repository is gone does.
    """
    return not _same(_inner(head, "repo"), _inner(base, "repo"))


def _nothing(sha: object) -> bool:
    return sha is None or (isinstance(sha, str) and set(sha) <= {"0"})


def _sha(value: object, path: str) -> str:
    if not isinstance(value, str) or not SHA.fullmatch(value.lower()):
        raise FieldError(path, value, "is no commit", limit="7 to 64 hexadecimal digits")
    return value.lower()


def _repository(value: object, path: str) -> str:
    if not isinstance(value, str) or len(value) > 200 or not REPOSITORY.fullmatch(value):
        raise FieldError(
            path, value, "is no repository", limit="owner/name, at most 200 characters"
        )
    return value


def _text(data: Mapping[str, Any], name: str, path: str) -> str | None:
    value = data.get(name)
    if value is not None and (
        not isinstance(value, str) or not value or len(value) > MOST_TEXT or not value.isprintable()
    ):
        raise FieldError(
            fields.join(path, name),
            value,
            "must be text",
            limit=f"1 to {MOST_TEXT} printable characters",
        )
    return value


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise FieldError(f"data.{name}", value, "must be true or false")
    return value


def _paths(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) > MOST_PATHS
        or not all(isinstance(each, str) for each in value)
    ):
        raise FieldError(
            "data.paths", value, "must be a list of paths", limit=f"at most {MOST_PATHS}"
        )
    return tuple(value)


def _installation(data: Mapping[str, Any]) -> int | None:
    found = _inner(data, "installation").get("id")
    return found if isinstance(found, int) and 0 < found < 2**63 else None


def _moment(value: object) -> datetime | None:
    """Return a time as GitHub writes it, in text or as seconds since the epoch; None where it is
    neither.
    """
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
