"""Rules in their newest version: their body, the checks beyond its form, and those in use.

gonogo/ci/rules.py defines what a rule means.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag
from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo import fields
from gonogo.ci.rules import Rule
from gonogo.errors import FieldError
from gonogo.settings import Settings
from gonogo.spec.validation import distinct
from gonogo_service.ci.model import CiRuleRow
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.kit.strict import Labels, Strict
from gonogo_service.suites import submission as suites
from gonogo_service.suites.bodies import SuiteIn
from gonogo_service.suites.noun import SuiteName

MAX_SUITES = 20
MAX_GAUGES = 20
_Suite = Annotated[
    Annotated[SuiteName, Tag("<stored>")] | Annotated[SuiteIn, Tag("<SuiteIn>")],
    Discriminator(lambda value: "<stored>" if isinstance(value, str) else "<SuiteIn>"),
]


def _name_of_suite(suite: str | SuiteIn) -> str:
    return suite if isinstance(suite, str) else suite.name


class RuleIn(Rule, Strict):
    """A rule: events of repositories that start suites and gauges. Every matching rule applies."""

    name: SuiteName
    suites: Annotated[
        list[_Suite],
        Field(max_length=MAX_SUITES),
        distinct("distinct suites", key=_name_of_suite),
    ] = Field([], description="Names of stored suites, or suites")
    gauges: list[GaugeIn] = Field([], max_length=MAX_GAUGES, description="As in POST /gauges")
    labels: Labels = Field({})

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


def get(session: Session, name: str) -> CiRuleRow | None:
    """Return a rule in use, or None."""
    row = session.get(CiRuleRow, name)
    return None if row is None or row.archived_at is not None else row


def in_use(session: Session) -> list[CiRuleRow]:
    """Return all rules in use, by name."""
    query = select(CiRuleRow).where(CiRuleRow.archived_at.is_(None)).order_by(CiRuleRow.name)
    return list(session.scalars(query))
