"""Rules: which suites and gauges a delivery of GitHub or another CI system starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy.orm import Session

from gonogo.ci.rules import Event
from gonogo.spec.validation import distinct
from gonogo_service.ci import noun, rules
from gonogo_service.ci.model import CiRuleRow
from gonogo_service.ci.rules import RuleIn
from gonogo_service.kit import rows, versioned
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.resource import Act, Resource, Same
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx

MAX_RULES = 200
SUMMARY = rows.extended_answer(
    CiRuleRow,
    "RuleSummary",
    without=("content", "archived_at"),
    description=str,
    enabled=bool,
    events=list[Event],
    repositories=list[str],
    suites=(int, "The number of suites that it starts"),
    gauges=(int, "The number of gauges that it starts"),
)
RULE = rows.extended_answer(
    CiRuleRow, "RuleOut", content=Annotated[dict[str, Any], Documented(RuleIn)]
)


def _line(_context: Any, _session: Session, row: CiRuleRow) -> dict[str, Any]:
    rule = row.rule
    counts = {"suites": len(rule.suites), "gauges": len(rule.gauges)}
    names = ("description", "enabled", "events", "repositories")
    return rows.values(SUMMARY, row, **{name: getattr(rule, name) for name in names}, **counts)


RULES = Resource(
    noun.RULES,
    CiRuleRow,
    answer=RULE,
    line=SUMMARY,
    show_line=_line,
    audited=("version",),
)
router = RULES.router
RULES.archives(
    "Archive a rule, which then starts nothing. What it started stays; storing it restores it."
)


@RULES.on_create
def put(act: Act, body: RuleIn) -> CiRuleRow | Same[CiRuleRow]:
    """Create the rule with that name, or replace it as its next version.

    The jobs that it starts belong to the user who stored it.
    """
    rules.check(act.session, body, act.context.settings)
    rule, changed = versioned.put(act.session, CiRuleRow, body.name, body.content(), act.who.name)
    return rule if changed else Same(rule)


class RulesFile(Strict):
    """All rules that should be in use."""

    rules: Annotated[
        list[RuleIn],
        Field(max_length=MAX_RULES),
        distinct("distinct names", key=lambda rule: rule.name, field="name"),
    ]


@dataclass(frozen=True)
class Replaced:
    """The changes of a rules file, by name."""

    stored: list[str]
    same: list[str]
    archived: list[str]


@router.put("/rules", summary="Replace all rules")
def replace(context: Ctx, who: Admin, body: RulesFile) -> Replaced:
    """Store the rules of a rules file, and archive all other rules.

    Nothing changes if one rule is invalid.
    """
    changes = Replaced([], [], [])
    names = {rule.name for rule in body.rules}
    with context.session() as session:
        for number, rule in enumerate(body.rules):
            rules.check(session, rule, context.settings, f"rules.{number}")
        for rule in body.rules:
            _, changed = versioned.put(session, CiRuleRow, rule.name, rule.content(), who.name)
            (changes.stored if changed else changes.same).append(rule.name)
        for row in rules.in_use(session):
            if row.name not in names:
                row.archived_at = row.updated_at = utcnow()
                changes.archived.append(row.name)
        if changes.stored or changes.archived:
            detail = {"stored": changes.stored, "archived": changes.archived}
            Act(context, session, who).audit(
                action="rules.replaced", subject="rules", detail=detail
            )
    return changes
