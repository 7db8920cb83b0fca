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
    author: str | None = None
    """The author of the head commit."""
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


class _Part:
    """An object of a payload; one that is missing, or that is no object, is empty."""

    def __init__(self, value: object, path: str = "") -> None:
        self.get = (value if isinstance(value, Mapping) else {}).get
        self._path = path

    def of(self, *names: str) -> _Part:
        """Return the object below these names."""
        part = self
        for name in names:
            part = _Part(part.get(name), fields.join(part._path, name))
        return part

    def listed(self, name: str) -> list[Any]:
        """Return a list; what is none is empty."""
        listed = self.get(name)
        return listed if isinstance(listed, list) else []

    def sha(self, name: str) -> str:
        """Return the hash of a commit. Raises FieldError."""
        return read_sha(self.get(name), fields.join(self._path, name))

    def sha_or_none(self, name: str) -> str | None:
        """Return the hash of a commit; None for none, which GitHub writes as zeros."""
        sha = self.get(name)
        is_none = sha is None or (isinstance(sha, str) and set(sha) <= {"0"})
        return None if is_none else self.sha(name)

    def text(self, name: str) -> str | None:
        """Return a text, or None. Raises FieldError."""
        value = self.get(name)
        return None if value is None else read_text(value, fields.join(self._path, name))

    def plain(self, name: str) -> str | None:
        """Return a text that anyone may have chosen, without unprintable characters."""
        text = self.get(name)
        if not isinstance(text, str):
            return None
        return "".join(char for char in text[:MAX_TEXT] if char.isprintable())

    def number(self, value: object) -> int:
        """Return the number of a pull request. Raises FieldError."""
        path = fields.join(self._path, "number")
        return fields.integer(value, path, least=1, most=MAX_NUMBER)

    def moment(self, name: str) -> datetime | None:
        """Return a time as GitHub writes it, in text or in seconds since the epoch; else None."""
        value = self.get(name)
        try:
            if isinstance(value, int) and not isinstance(value, bool):
                return datetime.fromtimestamp(value, UTC)
            moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        except (ValueError, OverflowError, OSError):
            return None
        return moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC))

    def same(self, other: _Part) -> bool:
        """Return whether both are the same thing by their ids."""
        return self.get("id") is not None and self.get("id") == other.get("id")

    @property
    def repository(self) -> str:
        """Return the repository's name. Raises FieldError."""
        return read_repository(self.of("repository").get("full_name"), "repository.full_name")

    @property
    def repository_if_any(self) -> str | None:
        """Return the repository's name as it is given; None for none."""
        name = self.of("repository").get("full_name")
        return name if isinstance(name, str) and len(name) <= MAX_TEXT else None

    @property
    def installation(self) -> int | None:
        """Return the installation of the App, if there is one."""
        number = self.of("installation").get("id")
        return number if isinstance(number, int) and 0 < number < 2**63 else None


def from_github(event: str, payload: object) -> CommitEvent | Rerequest | Ignored:
    """Parse GitHub's payload of that event (`X-GitHub-Event`).

    Raises FieldError if the payload of an event in _READERS has another form.
    """
    data, read = _Part(fields.mapping(payload, "body")), _READERS.get(event)
    if read is None:
        reason = f"nothing follows from the event {event[:100]!r}"
        return Ignored(reason, data.repository_if_any)
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
        occurred_at=_Part(message).moment("timestamp"),
        again=data.again,
        head_build=builds.head,
        base_build=builds.base,
    )


def from_polled(payload: object) -> CommitEvent:
    """Parse a pull request of a pushed commit that we got by asking GitHub.

    It has the form {"rule", "head_build", "pull_request", ...}. Raises FieldError.
    """
    data = fields.mapping(payload, "body")
    event, polled = _pull_request(_Part({**data, "action": POLLED})), _Part(data)
    return replace(event, rule=polled.text("rule"), head_build=polled.text("head_build"))


def _push(data: _Part) -> CommitEvent | Ignored:
    ref = data.get("ref")
    if not isinstance(ref, str) or not ref.startswith(BRANCH):
        reason = f"a push to {str(ref)[:100]}, which is not a branch"
        return Ignored(reason, data.repository)
    branch = ref.removeprefix(BRANCH)
    if data.get("deleted") or data.sha_or_none("after") is None:
        return Ignored(f"the branch {branch[:100]} was deleted", data.repository)
    commits = data.listed("commits")
    # new branches, forced pushes and very large pushes list only some of the commits
    is_whole = 0 < len(commits) < MAX_COMMITS and not (data.get("created") or data.get("forced"))
    paths = {
        path
        for commit in commits
        for kind in ("added", "modified", "removed")
        for path in _Part(commit).listed(kind)
        if isinstance(path, str)
    }
    return CommitEvent(
        event="push",
        repository=data.repository,
        head_sha=data.sha("after"),
        base_sha=data.sha_or_none("before"),
        branch=branch,
        author=data.of("head_commit", "author").plain("name"),
        paths=tuple(sorted(paths)) if is_whole else None,
        occurred_at=data.of("repository").moment("pushed_at")
        or data.of("head_commit").moment("timestamp"),
        installation=data.installation,
    )


def _pull_request(data: _Part) -> CommitEvent:
    request = data.of("pull_request")
    return CommitEvent(
        event="pull_request",
        repository=data.repository,
        head_sha=request.of("head").sha("sha"),
        base_sha=request.of("base").sha("sha"),
        action=data.text("action"),
        branch=request.of("base").text("ref"),
        pull_request=request.number(request.get("number", data.get("number"))),
        fork=_is_foreign(request),
        author=request.of("user").plain("login"),
        occurred_at=request.moment("updated_at"),
        installation=data.installation,
    )


def _workflow_run(data: _Part) -> CommitEvent:
    run = data.of("workflow_run")
    fork = not run.of("head_repository").same(data.of("repository"))
    return _about(data, "workflow_run", fork=fork, workflow=run.plain("name"))


def _check_suite(data: _Part) -> CommitEvent | Rerequest:
    suite = data.of("check_suite")
    # GitHub names no branch for a commit that is on no branch here: it was pushed to a fork
    fork = not isinstance(suite.get("head_branch"), str)
    event = _about(data, "check_suite", fork=fork, workflow=suite.of("app").plain("slug"))
    return _rerequest(data, "check_suite", otherwise=event) if event.again else event


def _check_run(data: _Part) -> Rerequest | Ignored:
    action, pressed = data.text("action"), data.of("requested_action").get("identifier")
    if action != REREQUESTED and (action != "requested_action" or pressed != BOTH):
        words = (
            f"a check run's button {str(pressed)[:40]!r}"
            if action == "requested_action"
            else f"a check run that was {str(action)[:40]}"
        )
        return Ignored(f"nothing follows from {words}", data.repository_if_any)
    check = data.of("check_run").get("external_id")
    check = check if isinstance(check, str) else ""
    return _rerequest(data, "check_run", check=check, both=pressed == BOTH)


def _rerequest(data: _Part, what: str, **more: Any) -> Rerequest:
    app = data.of(what, "app")
    return Rerequest(
        repository=data.repository,
        head_sha=data.of(what).sha("head_sha"),
        app=tuple(str(app.get(name)) for name in ("id", "client_id") if app.get(name)),
        slug=app.plain("slug") or "unknown",
        installation=data.installation,
        **more,
    )


def _about(data: _Part, what: str, *, fork: bool, workflow: str | None) -> CommitEvent:
    """Return the event of a workflow_run or a check_suite, from what they have in common.

    If several pull requests have this head, it is the first one's.
    """
    subject, repository = data.of(what), data.of("repository")
    # The list has requests to other repositories, too; their numbers mean other requests here.
    listed = (_Part(item, what) for item in subject.listed("pull_requests"))
    request = next((item for item in listed if item.of("base", "repo").same(repository)), None)
    base = subject if request is None else request.of("base")
    number = None if request is None else request.get("number")
    action = data.text("action")
    return CommitEvent(
        event=what,
        repository=data.repository,
        head_sha=subject.sha("head_sha"),
        base_sha=base.sha_or_none("before" if request is None else "sha"),
        action=action,
        branch=base.text("head_branch" if request is None else "ref"),
        pull_request=None if request is None or number is None else request.number(number),
        author=subject.of("head_commit", "author").plain("name"),
        fork=fork or (request is not None and _is_foreign(request)),
        # the time of creation, because it may change long after a newer commit came
        occurred_at=subject.moment("created_at"),
        installation=data.installation,
        workflow=workflow,
        conclusion=subject.plain("conclusion"),
        again=action == REREQUESTED,
    )


def _is_foreign(request: _Part) -> bool:
    """Return whether a pull request's head is in another repository than its target.

    A head whose repository is gone counts as foreign.
    """
    return not request.of("head", "repo").same(request.of("base", "repo"))


_READERS: dict[str, Callable[[_Part], CommitEvent | Rerequest | Ignored]] = {
    "push": _push,
    "pull_request": _pull_request,
    "workflow_run": _workflow_run,
    "check_suite": _check_suite,
    # needs no rule: somebody requested one of our checks again
    "check_run": _check_run,
}
"""The events that may start something."""
