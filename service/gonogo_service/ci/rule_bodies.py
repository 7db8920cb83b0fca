"""The body of a rule, and the checks beyond its schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag
from sqlalchemy.orm import Session

from gonogo import fields
from gonogo.ci.rules import OF_THE_COMMIT, problem_of
from gonogo.errors import FieldError
from gonogo.settings import Settings
from gonogo.spec.builds import EMULATOR, DeclaredBuild
from gonogo.spec.validation import Refused, distinct
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.kit.strict import NAME, Labels, Strict, Word
from gonogo_service.suites import submission as suites
from gonogo_service.suites.bodies import SuiteIn
from gonogo_service.suites.noun import SuiteName

MAX_PATTERNS = 100
MAX_SUITES = 20
MAX_GAUGES = 20

Event = Literal["push", "pull_request", "workflow_run", "check_suite", "commit"]
Pattern = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^!?[^!\s]\S*$")]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]
Words = Annotated[list[Word], Field(max_length=50)]


def _is_template(template: str) -> str:
    if problem := problem_of(template):
        raise Refused(FieldError("", template, problem, limit="such as kernels-{short}"))
    return template


Template = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_is_template)]


def _kind_of_suite(value: object) -> str:
    return "<stored>" if isinstance(value, str) else "<SuiteIn>"


def _name_of_suite(suite: str | SuiteIn) -> str:
    return suite if isinstance(suite, str) else suite.name


class BuildsOfRule(Strict):
    """The names of the commits' builds.

    `{sha}`, `{short}`, `{branch}` and `{number}` are replaced by parts of the event.
    """

    head: Template | None = Field(
        None, description="null: the build that is registered with the commit"
    )
    base: Template | None = Field(None, description="null: the same template as for head")


class Register(DeclaredBuild, Strict):
    """The registration of unknown builds in `builds`.

    The worker hosts define what a build means.
    """

    branch: str = Field("default", pattern=NAME, max_length=150)

    def _normalize(self) -> None:
        super()._normalize()
        if self.executor == EMULATOR:
            reason = "the emulator's builds are part of it"
            raise FieldError("executor", EMULATOR, reason, limit="any other executor")


class RuleIn(Strict):
    """A rule: events of repositories that start suites and gauges. Every matching rule applies."""

    name: SuiteName
    description: str = Field("", max_length=2000)
    enabled: bool = True
    events: list[Event] = Field(
        min_length=1, max_length=5, description="`commit` is the event of other CI systems"
    )
    repositories: Annotated[list[Pattern], Field(min_length=1, max_length=MAX_PATTERNS)] = Field(
        description="owner/name, or patterns"
    )
    actions: Words = Field(
        [], description="Empty: the actions with a new head, or that request a run"
    )
    branches: Patterns = Field(
        [], description="Branches of pushes, or base branches of pull requests; empty: all"
    )
    paths: Patterns = Field(
        [],
        description="At least one changed path must match; empty or unknown paths: always",
    )
    workflows: Patterns = Field(
        [], description="Names of workflows, or slugs of Apps with check suites; empty: all"
    )
    conclusions: Words = Field(["success"], description="Conclusions of a completed workflow")
    forks: bool = Field(False, description="true: commits of forks run on your devices")
    base: bool = Field(True, description="Also run the commit before the change, unless it has run")
    pull_requests: bool = Field(
        True,
        description=(
            "Answer a push also at the open pull requests of its commit for which there was no "
            "delivery"
        ),
    )
    builds: BuildsOfRule = BuildsOfRule(head=None, base=None)
    register_: Register | None = Field(None, alias="register")
    suites: Annotated[
        list[
            Annotated[
                Annotated[SuiteName, Tag("<stored>")] | Annotated[SuiteIn, Tag("<SuiteIn>")],
                Discriminator(_kind_of_suite),
            ]
        ],
        Field(max_length=MAX_SUITES),
        distinct("distinct suites", key=_name_of_suite),
    ] = Field([], description="Names of stored suites, or suites")
    gauges: list[GaugeIn] = Field([], max_length=MAX_GAUGES, description="As in POST /gauges")
    labels: Labels = Field({})

    def _normalize(self) -> None:
        if not self.suites and not self.gauges:
            reason = "a rule must start something"
            raise FieldError("suites", [], reason, limit="a suite or a gauge")
        head, base = self.builds.head, self.builds.base
        same = head is not None and not any(place in head for place in OF_THE_COMMIT)
        if self.suites and self.base and same and base is None:
            reason = (
                f"is required: {head!r} names the same build for every commit, which would be "
                "compared with itself"
            )
            limit = "a build; {sha} or {short} in builds.head; or base: false"
            raise FieldError("builds.base", None, reason, limit=limit)
        if self.register_ is not None and head is None:
            reason = "there is no name to register"
            raise FieldError("register", self.register_.executor, reason, limit="builds.head")

    def content(self) -> dict[str, Any]:
        """Return the stored content: the given fields, without defaults."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)


def check(session: Session, rule: RuleIn, settings: Settings, path: str = "") -> None:
    """Check what the schema can't: each suite and each gauge is valid.

    Raises FieldError.
    """
    for number, suite in enumerate(rule.suites):
        where = fields.join(path, f"suites.{number}")
        if isinstance(suite, str):
            try:
                suites.usable(session, suite)
            except FieldError as error:
                raise error.at(where) from None
        else:
            suites.check(suite.content(), settings, where)
    for number, gauge in enumerate(rule.gauges):
        try:
            gauges.order(session, gauge, settings)
        except FieldError as error:
            raise error.at(fields.join(path, f"gauges.{number}.{error.field}")) from None
