"""The body of a rule, and what is checked of it beyond its form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag
from sqlalchemy.orm import Session

from gonogo.ci.rules import OF_THE_COMMIT, problem_of
from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.builds import ARITHMETICS, EMULATOR, Build
from gonogo_service.api.suites.schemas import Labels, SuiteIn, SuiteName
from gonogo_service.kit.strict import Strict
from gonogo_service.submission import gauges, suites
from gonogo_service.submission.bodies import NAME, GaugeIn, Word
from gonogo_settings import Settings

MOST_PATTERNS = 100
MOST_SUITES = 20
MOST_GAUGES = 20

Event = Literal["push", "pull_request", "workflow_run", "check_suite", "commit"]
Pattern = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^!?[^!\s]\S*$")]
Patterns = Annotated[list[Pattern], Field(max_length=MOST_PATTERNS)]
Words = Annotated[list[Word], Field(max_length=50)]
Template = Annotated[str, Field(min_length=1, max_length=200)]


def _kind_of_suite(value: object) -> str:
    return "stored" if isinstance(value, str) else "inline"


class BuildsOfRule(Strict):
    """Which builds the commits are. `{sha}`, `{short}`, `{branch}` and `{number}` stand for parts
    of the event.
    """

    head: Template | None = Field(
        None, description="null: the build that is registered with the commit"
    )
    base: Template | None = Field(None, description="null: named as the head's")


class Register(Strict):
    """How a build that `builds` names and nobody knows is registered. What it means stands on the
    worker hosts.
    """

    executor: Word
    branch: str = Field("default", pattern=NAME, max_length=150)
    arithmetic: str | None = Field(
        None, description="arithmetic model of its kernels: " + ", ".join(ARITHMETICS)
    )
    outputs: list[str] | None = Field(None, min_length=1, max_length=16)


class RuleIn(Strict):
    """A rule: which events of which repositories start which suites and gauges. Every rule that
    fits is applied.
    """

    name: SuiteName
    description: str = Field("", max_length=2000)
    enabled: bool = True
    events: list[Event] = Field(
        min_length=1, max_length=5, description="`commit` is what other CI systems send"
    )
    repositories: Annotated[list[Pattern], Field(min_length=1, max_length=MOST_PATTERNS)] = Field(
        description="owner/name, or patterns"
    )
    actions: Words = Field([], description="none: those that bring a new head, or ask for a run")
    branches: Patterns = Field(
        [], description="that is pushed to, or that a pull request is made to; none: all"
    )
    paths: Patterns = Field(
        [], description="one changed path must fit; none: all, and so where nobody knows the paths"
    )
    workflows: Patterns = Field(
        [], description="names of workflows, or slugs of Apps whose check suites count; none: all"
    )
    conclusions: Words = Field(["success"], description="of a workflow that completed")
    forks: bool = Field(False, description="true: commits of forks run on your devices")
    base: bool = Field(
        True, description="run the commit before the change as well, unless it was run"
    )
    pull_requests: bool = Field(
        True,
        description="answer a push at the open pull requests of its commit, too, of which no delivery told",
    )
    builds: BuildsOfRule = BuildsOfRule(head=None, base=None)
    register_: Register | None = Field(None, alias="register")
    suites: Annotated[
        list[
            Annotated[
                Annotated[SuiteName, Tag("stored")] | Annotated[SuiteIn, Tag("inline")],
                Discriminator(_kind_of_suite),
            ]
        ],
        Field(max_length=MOST_SUITES),
    ] = Field([], description="by name, or the suite itself")
    gauges: list[GaugeIn] = Field([], max_length=MOST_GAUGES, description="as of POST /gauges")
    labels: Labels = Field({})

    def content(self) -> dict[str, Any]:
        """What is stored: as it was given, without what was left out."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)


class RuleOut(BaseModel):
    """A rule in its newest version."""

    name: str
    version: int
    key: str
    content: dict[str, Any]
    owner: str
    created_at: str
    updated_at: str
    archived_at: str | None


class RulePage(BaseModel):
    """A page of rules, by name."""

    items: list[RuleOut]
    next: str | None


def check(session: Session, rule: RuleIn, settings: Settings, path: str = "") -> None:
    """What the form can't say: suites and gauges are known and whole, builds can be named. Raises
    FieldError.
    """
    if not rule.suites and not rule.gauges:
        raise FieldError(
            fields.join(path, "suites"),
            [],
            "a rule must start something",
            limit="a suite or a gauge",
        )
    names: set[str] = set()
    for number, suite in enumerate(rule.suites):
        where = fields.join(path, f"suites.{number}")
        name = suite if isinstance(suite, str) else suite.name
        if name in names:
            raise FieldError(where, name, "is there twice", limit="distinct suites")
        names.add(name)
        if isinstance(suite, str):
            try:
                suites.usable(session, suite)
            except FieldError as error:
                raise FieldError(where, suite, error.reason, limit=error.limit) from None
        else:
            suites.check(suite.content(), settings, where)
    for number, gauge in enumerate(rule.gauges):
        try:
            gauges.order(session, gauge, settings, "")
        except FieldError as error:
            where = fields.join(path, f"gauges.{number}.{error.field}")
            raise FieldError(where, error.value, error.reason, limit=error.limit) from None
    _check_builds(rule, path)


def _check_builds(rule: RuleIn, path: str) -> None:
    for side, template in (("head", rule.builds.head), ("base", rule.builds.base)):
        problem = None if template is None else problem_of(template)
        if problem is not None:
            raise FieldError(fields.join(path, f"builds.{side}"), template, problem)
    head = rule.builds.head
    same = head is not None and not any(place in head for place in OF_THE_COMMIT)
    if rule.suites and rule.base and same and rule.builds.base is None:
        reason = f"is needed: {head!r} names the same build for every commit, and it would be compared with itself"
        raise FieldError(
            fields.join(path, "builds.base"),
            None,
            reason,
            limit="a build; {sha} or {short} in builds.head; or base: false",
        )
    if rule.register_ is not None:
        where = fields.join(path, "register")
        if head is None:
            raise FieldError(
                where, rule.register_.executor, "there is no name to register", limit="builds.head"
            )
        if rule.register_.executor == EMULATOR:
            raise FieldError(
                f"{where}.executor",
                EMULATOR,
                "the emulator's builds are part of it",
                limit="any other executor",
            )
        try:
            Build.parse(
                {"name": "x", "sequence": 0, "commit": None, **rule.register_.model_dump()}, path=""
            )
        except FieldError as error:
            raise FieldError(
                f"{where}.{error.field}", error.value, error.reason, limit=error.limit
            ) from None
