"""Events about commits: GitHub's payloads and those of other CI systems in one form.

Sources: GitHub's "Webhook events and payloads" for push, pull_request, workflow_run, check_suite
and check_run. Every other event is Ignored with a reason, never an error; so are those that say
nothing about a commit to test (a tag, a deleted branch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gonogo import fields
from gonogo.ci.commit_message import (
    COMMIT,
    MAX_NUMBER,
    MAX_TEXT,
    CommitMessage,
    NamedBuilds,
    TypedMessage,
    read_repository,
    read_sha,
    read_text,
)

GITHUB = ("push", "pull_request", "workflow_run", "check_suite")
"""Events that a rule may name."""
REREQUESTED = "rerequested"
POLLED = "found"
"""The action of a pull request that we got by asking GitHub, because no delivery mentioned it."""
BOTH = "gonogo-both"
"""The button on our check runs that requests head and base again."""
BRANCH = "refs/heads/"
MAX_COMMITS = 2048
"""GitHub lists at most this many commits of a push."""


@dataclass(frozen=True)
class CommitEvent:
    """An event about a commit."""

    event: str
    repository: str
    """"owner/name"; for a pull request, its target repository."""
    head_sha: str
    base_sha: str | None = None
    """The commit that the head is compared with: the commit before a push, or the tip of a pull
    request's target branch."""
    action: str | None = None
    branch: str | None = None
    """The branch that was pushed to, or a pull request's target branch."""
    pull_request: int | None = None
    fork: bool = False
    """True if the commit comes from a repository that others may write to, or from an unknown
    one."""
    paths: tuple[str, ...] | None = None
    """The paths that changed between base and head; None: the delivery does not say."""
    occurred_at: datetime | None = None
    """The time by the sender's clock."""
    installation: int | None = None
    """The installation of the GitHub App that received it."""
    workflow: str | None = None
    """For workflow_run its name; for check_suite its App."""
    conclusion: str | None = None
    again: bool = False
    """True if a person requested it again: no earlier run of the head counts."""
    again_base: bool = False
    """True if no earlier run of the base counts, either."""
    rule: str | None = None
    """The only rule that it concerns; None: every rule that fits."""
    head_build: str | None = None
    base_build: str | None = None
    """The builds, if another CI system named them; otherwise the rule names them."""


@dataclass(frozen=True)
class Ignored:
    """An event that starts nothing, and the reason."""

    reason: str
    repository: str | None = None


@dataclass(frozen=True)
class Rerequest:
    """A request at GitHub to run an App's check of a commit again, or all of them."""

    repository: str
    head_sha: str
    app: tuple[str, ...]
    """The App's identifiers: its number and its client id."""
    slug: str
    check: str | None = None
    """The id that the App gave its check run; None: all of the commit's."""
    both: bool = False
    """True if base is requested as well."""
    installation: int | None = None
    otherwise: CommitEvent | None = None
    """The event for rules that name check suites."""


def from_github(event: str, payload: object) -> CommitEvent | Rerequest | Ignored:
    """Parse GitHub's payload of that event (`X-GitHub-Event`).

    Raises FieldError if the payload of an event in _READERS has another form.
    """
    data = fields.mapping(payload, "body")
    read = _READERS.get(event)
    if read is None:
        reason = f"nothing follows from the event {event[:100]!r}"
        return Ignored(reason, _named(data.get("repository")))
    return read(data)


def from_ci(payload: object) -> CommitEvent | Ignored:
    """Parse the message of another CI system.

    It has the form {"type": "commit", "data": {"repository", "sha", ...}}. Raises FieldError.
    """
    message = fields.mapping(payload, "body")
    kind = TypedMessage.parse(message).type
    if kind != COMMIT:
        return Ignored(f"nothing follows from the type {kind[:100]!r}")
    data = CommitMessage.parse(message).data
    builds = data.builds or NamedBuilds()
    return CommitEvent(
        event=COMMIT,
        repository=data.repository,
        head_sha=data.sha,
        base_sha=data.base,
        action=data.action,
        branch=data.branch,
        pull_request=data.pull_request,
        fork=data.fork,
        paths=None if data.paths is None else tuple(data.paths),
        occurred_at=_moment(message.get("timestamp")),
        again=data.again,
        head_build=builds.head,
        base_build=builds.base,
    )


def from_polled(payload: object) -> CommitEvent:
    """Parse a pull request of a pushed commit that we got by asking GitHub.

    It has the form {"rule", "head_build", "pull_request", ...}. Raises FieldError.
    """
    data = fields.mapping(payload, "body")
    event = _pull_request({**data, "action": POLLED})
    return replace(event, rule=_text(data, "rule", ""), head_build=_text(data, "head_build", ""))


def _push(data: Mapping[str, Any]) -> CommitEvent | Ignored:
    repository = _repository(data)
    ref = data.get("ref")
    if not isinstance(ref, str) or not ref.startswith(BRANCH):
        return Ignored(f"a push to {str(ref)[:100]}, which is not a branch", repository)
    after = data.get("after")
    if data.get("deleted") or _nothing(after):
        return Ignored(f"the branch {ref.removeprefix(BRANCH)[:100]} was deleted", repository)
    before, commits = data.get("before"), _listed(data, "commits")
    # new branches, forced pushes and very large pushes list only some of the commits
    is_whole = 0 < len(commits) < MAX_COMMITS and not (data.get("created") or data.get("forced"))
    paths = {
        path
        for commit in commits
        if isinstance(commit, Mapping)
        for kind in ("added", "modified", "removed")
        for path in _listed(commit, kind)
        if isinstance(path, str)
    }
    return CommitEvent(
        event="push",
        repository=repository,
        head_sha=read_sha(after, "after"),
        base_sha=None if _nothing(before) else read_sha(before, "before"),
        branch=ref.removeprefix(BRANCH),
        paths=tuple(sorted(paths)) if is_whole else None,
        occurred_at=_moment(_inner(data, "repository").get("pushed_at"))
        or _moment(_inner(data, "head_commit").get("timestamp")),
        installation=_installation(data),
    )


def _pull_request(data: Mapping[str, Any]) -> CommitEvent:
    request = _inner(data, "pull_request")
    head, base = _inner(request, "head"), _inner(request, "base")
    number = request.get("number", data.get("number"))
    return CommitEvent(
        event="pull_request",
        repository=_repository(data),
        head_sha=read_sha(head.get("sha"), "pull_request.head.sha"),
        base_sha=read_sha(base.get("sha"), "pull_request.base.sha"),
        action=_text(data, "action", ""),
        branch=_text(base, "ref", "pull_request.base"),
        pull_request=fields.integer(number, "pull_request.number", least=1, most=MAX_NUMBER),
        fork=_foreign(head, base),
        occurred_at=_moment(request.get("updated_at")),
        installation=_installation(data),
    )


def _workflow_run(data: Mapping[str, Any]) -> CommitEvent | Ignored:
    run = _inner(data, "workflow_run")
    repository, source = _inner(data, "repository"), _inner(run, "head_repository")
    return _about(
        data,
        run,
        repository,
        fork=not _same(source, repository),
        workflow=run.get("name"),
        where="workflow_run",
    )


def _check_suite(data: Mapping[str, Any]) -> CommitEvent | Rerequest:
    suite = _inner(data, "check_suite")
    # GitHub names no branch for a commit that is on no branch here: it was pushed to a fork
    fork = not isinstance(suite.get("head_branch"), str)
    event = _about(
        data,
        suite,
        _inner(data, "repository"),
        fork=fork,
        workflow=_inner(suite, "app").get("slug"),
        where="check_suite",
    )
    return _rerequest(data, suite, "check_suite", otherwise=event) if event.again else event


def _check_run(data: Mapping[str, Any]) -> Rerequest | Ignored:
    run, action = _inner(data, "check_run"), _text(data, "action", "")
    pressed = _inner(data, "requested_action").get("identifier")
    if action != REREQUESTED and (action != "requested_action" or pressed != BOTH):
        words = (
            f"a check run's button {str(pressed)[:40]!r}"
            if action == "requested_action"
            else f"a check run that was {str(action)[:40]}"
        )
        return Ignored(f"nothing follows from {words}", _named(data.get("repository")))
    check = run.get("external_id")
    return _rerequest(
        data, run, "check_run", check=check if isinstance(check, str) else "", both=pressed == BOTH
    )


def _rerequest(
    data: Mapping[str, Any], subject: Mapping[str, Any], where: str, **more: Any
) -> Rerequest:
    app = _inner(subject, "app")
    return Rerequest(
        repository=_repository(data),
        head_sha=read_sha(subject.get("head_sha"), f"{where}.head_sha"),
        app=tuple(str(app[name]) for name in ("id", "client_id") if app.get(name)),
        slug=_plain(app.get("slug")) or "unknown",
        installation=_installation(data),
        **more,
    )


def _about(
    data: Mapping[str, Any],
    subject: Mapping[str, Any],
    repository: Mapping[str, Any],
    *,
    fork: bool,
    workflow: object,
    where: str,
) -> CommitEvent:
    """Return the event of a workflow_run or a check_suite, from what they have in common.

    If several pull requests have this head, it is the first one's.
    """
    # The list has requests to other repositories, too; their numbers mean other requests here.
    listed = (item for item in _listed(subject, "pull_requests") if isinstance(item, Mapping))
    requests = [item for item in listed if _same(_inner(_inner(item, "base"), "repo"), repository)]
    first = requests[0] if requests else {}
    head, base = _inner(first, "head"), _inner(first, "base")
    number = first.get("number")
    action = _text(data, "action", "")
    before = base.get("sha") if requests else subject.get("before")
    return CommitEvent(
        event=where,
        repository=read_repository(repository.get("full_name"), "repository.full_name"),
        head_sha=read_sha(subject.get("head_sha"), f"{where}.head_sha"),
        base_sha=None if _nothing(before) else read_sha(before, f"{where}.before"),
        action=action,
        branch=_text(base, "ref", where) if requests else _text(subject, "head_branch", where),
        pull_request=None
        if number is None
        else fields.integer(number, f"{where}.pull_requests.0.number", least=1, most=MAX_NUMBER),
        fork=fork or (bool(requests) and _foreign(head, base)),
        # the time of creation, because it may change long after a newer commit came
        occurred_at=_moment(subject.get("created_at")),
        installation=_installation(data),
        workflow=_plain(workflow),
        conclusion=_plain(subject.get("conclusion")),
        again=action == REREQUESTED,
    )


_READERS: dict[str, Callable[[Mapping[str, Any]], CommitEvent | Rerequest | Ignored]] = {
    "push": _push,
    "pull_request": _pull_request,
    "workflow_run": _workflow_run,
    "check_suite": _check_suite,
    # needs no rule: somebody requested one of our checks again
    "check_run": _check_run,
}
"""The events that may start something."""


def _repository(data: Mapping[str, Any]) -> str:
    return read_repository(_inner(data, "repository").get("full_name"), "repository.full_name")


def _inner(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = data.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _listed(data: Mapping[str, Any], name: str) -> list[Any]:
    listed = data.get(name)
    return listed if isinstance(listed, list) else []


def _named(repository: object) -> str | None:
    name = repository.get("full_name") if isinstance(repository, Mapping) else None
    return name if isinstance(name, str) and len(name) <= MAX_TEXT else None


def _plain(value: object) -> str | None:
    """Return a text that anyone may have chosen, without unprintable characters."""
    if not isinstance(value, str):
        return None
    return "".join(char for char in value[:MAX_TEXT] if char.isprintable())


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("id") is not None and one.get("id") == other.get("id")


def _foreign(head: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Return whether a pull request's head is in another repository than its target.

    A head whose repository is gone counts as foreign.
    """
    return not _same(_inner(head, "repo"), _inner(base, "repo"))


def _nothing(sha: object) -> bool:
    return sha is None or (isinstance(sha, str) and set(sha) <= {"0"})


def _text(data: Mapping[str, Any], name: str, path: str) -> str | None:
    value = data.get(name)
    return None if value is None else read_text(value, fields.join(path, name))


def _installation(data: Mapping[str, Any]) -> int | None:
    installation = _inner(data, "installation").get("id")
    return installation if isinstance(installation, int) and 0 < installation < 2**63 else None


def _moment(value: object) -> datetime | None:
    """Return a time as GitHub writes it, in text or as seconds since the epoch; else None."""
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
