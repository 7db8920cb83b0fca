"""Rules: which suites and gauges a delivery of GitHub or another CI system starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from gonogo.spec.validation import distinct
from gonogo_service.ci import rule_schemas
from gonogo_service.ci import rules as stored
from gonogo_service.ci.rule_schemas import RuleIn, RuleOut, RuleSummary
from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Limit, extend_page, make_router, missing, require
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("rules")
MAX_RULES = 200


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


@router.post(
    "/rules",
    status_code=201,
    responses={200: {"model": RuleOut, "description": "Unchanged"}},
    summary="Store a rule",
)
def put(context: Ctx, who: Admin, body: RuleIn, response: Response) -> RuleOut:
    """Create the rule with that name, or replace it as its next version.

    The jobs that it starts belong to the user who stored it.
    """
    with context.session() as session:
        rule_schemas.check(session, body, context.settings)
        rule, changed = stored.put(session, body.name, body.content(), owner=who.name, now=utcnow())
        if changed:
            audit.record(
                session,
                actor=who.actor,
                action="rule.stored",
                subject=body.name,
                detail={"version": rule.version},
            )
    if not changed:
        response.status_code = 200
    return from_object(RuleOut, rule)


@router.put("/rules", summary="Replace all rules")
def replace(context: Ctx, who: Admin, body: RulesFile) -> Replaced:
    """Store the rules of a rules file, and archive all other rules.

    Nothing changes if one rule is invalid.
    """
    names = [rule.name for rule in body.rules]
    changes: dict[str, list[str]] = {"stored": [], "same": [], "archived": []}
    with context.session() as session:
        for number, rule in enumerate(body.rules):
            rule_schemas.check(session, rule, context.settings, f"rules.{number}")
        for rule in body.rules:
            _, changed = stored.put(
                session, rule.name, rule.content(), owner=who.name, now=utcnow()
            )
            changes["stored" if changed else "same"].append(rule.name)
        for name in stored.others(session, names):
            stored.archive(session, name, now=utcnow())
            changes["archived"].append(name)
        if changes["stored"] or changes["archived"]:
            detail: dict[str, Any] = {name: changes[name] for name in ("stored", "archived")}
            audit.record(
                session, actor=who.actor, action="rules.replaced", subject="rules", detail=detail
            )
    return Replaced(**changes)


@router.get("/rules", summary="List rules")
def list_rules(
    context: Ctx, _who: Reader, limit: Limit = 50, cursor: Cursor = None
) -> Page[RuleSummary]:
    """List the rules in use, by name."""
    with context.reading() as session:
        page = stored.list_(session, limit=limit, cursor=cursor)
        return extend_page(page, rule_schemas.summary)


@router.get(
    "/rules/{name}",
    summary="Show a rule",
)
def look(context: Ctx, _who: Reader, name: str) -> RuleOut:
    """Show a rule in its newest version."""
    with context.reading() as session:
        rule = stored.get(session, name)
        if rule is None:
            raise missing("rule", name, [known.name for known in stored.in_use(session)])
    return from_object(RuleOut, rule)


@router.delete(
    "/rules/{name}",
    summary="Archive a rule",
)
def archive(context: Ctx, who: Admin, name: str) -> RuleOut:
    """Archive a rule, which then starts nothing. What it started stays; storing it restores it."""
    with context.session() as session:
        rule = require(stored.archive(session, name, now=utcnow()), "rule", name)
        audit.record(session, actor=who.actor, action="rule.archived", subject=name)
    return from_object(RuleOut, rule)
