"""Imports: the report of an external run becomes a finished job."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.reports import reading
from gonogo.reports.cases import TestReport
from gonogo.reports.rows import rows_of
from gonogo.spec.builds import Build, known_build
from gonogo.spec.selections import MAX_NAME, Selection
from gonogo_service.builds import store as builds
from gonogo_service.jobs import imports
from gonogo_service.jobs.api.schemas import JobLinks, links
from gonogo_service.jobs.bodies import REPOSITORY, SHA, Commit
from gonogo_service.kit import audit, idempotency
from gonogo_service.kit.answers import make_router
from gonogo_service.kit.database.states import IMPORT_EXECUTOR, JobKind
from gonogo_service.kit.strict import MAX_LABELS, NAME, WORD, Labels, Name, Strict
from gonogo_service.people import bounds, idempotency_keys
from gonogo_service.people.context import Ctx, Submitter

router = make_router("jobs")
BRANCH = "imported"
UNKNOWN = "unknown"
SHA_SHOWN = 12
MAX_LABEL = 200
Format = Literal["junit", "gtest-xml", "gtest-json", "ctrf", "gonogo"]
Suite = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_NAME,
        description="Name of the history; default: the name in the file",
    ),
]


@dataclass(frozen=True)
class ImportAccepted:
    """The answer to an import: the created job."""

    id: str
    kind: JobKind
    verdict: str | None
    tests: int
    numbers: bool
    outcomes: dict[str, int]
    links: JobLinks


async def _raw(request: Request) -> bytes:
    """Return the raw body; the parameter `format` defines it, not the Content-Type."""
    return await request.body()


_BODY = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@idempotency_keys.once_at(
    router,
    "/imports",
    ImportAccepted,
    "Import the report of an external run",
    201,
    openapi_extra={"requestBody": _BODY},
)
def import_report(
    context: Ctx,
    who: Submitter,
    request: Request,
    data: Annotated[bytes, Depends(_raw)],
    format: Annotated[Format, Query(description="Format of the body")],
    suite: Suite = None,
    build: Annotated[
        str | None,
        Query(pattern=NAME, max_length=200, description="Default: the file's, else its commit's"),
    ] = None,
    arch: Annotated[str, Query(pattern=WORD, max_length=64)] = "any",
    board: Annotated[str, Query(pattern=WORD, max_length=64)] = "any",
    label: Annotated[
        list[str] | None, Query(max_length=MAX_LABELS, description="`name=value`, repeatable")
    ] = None,
    repository: Annotated[str | None, Query(pattern=REPOSITORY, max_length=200)] = None,
    sha: Annotated[str | None, Query(pattern=SHA)] = None,
    pull_request: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    key: idempotency.Key = None,
) -> Response:
    """Import a report as a finished job.

    A token that is limited to repositories may import reports of their commits. One that is limited
    to suites may not, because an import belongs to no suite of the service.

    Tests of JUnit, gtest and CTRF become `not_judged`: history without numbers. Tests in the format
    `gonogo` are judged.
    """
    # before the transaction, so that others can write meanwhile
    commit = _commit(repository, sha, pull_request)
    if commit is not None:  # a token without the right is refused before its file is read
        bounds.demand_within(who, repository=commit.repository)
    report = reading.read(data, format, max_elements=context.settings.max_elements)
    _check_names(report, build)
    commit = commit or _commit_of(report)
    bounds.demand_within(who, repository=None if commit is None else commit.repository)
    rows, tests, digest = rows_of(report), len(report.cases), hashlib.sha256(data).hexdigest()

    def make(session: Session) -> ImportAccepted:
        job = imports.create(
            session,
            Selection(suite=suite or report.suite or format),
            _build(session, build or report.build, commit),
            rows,
            source={
                "format": format,
                "tool": report.tool,
                "tests": tests,
                "numbers": report.numbers,
                "bytes": len(data),
                "sha256": digest,
                "started_at": report.started_at,
            },
            arch=arch,
            board=board,
            labels={**report.labels, **_labels(label or [])},
            commit=None if commit is None else commit.model_dump(),
            owner=who.name,
        )
        detail = {"format": format, "build": job.build, "tests": tests, "sha256": digest}
        audit.record(
            session, actor=who.actor, action="import.created", subject=job.id, detail=detail
        )
        return ImportAccepted(
            id=job.id,
            kind=job.kind,
            verdict=job.verdict,
            tests=tests,
            numbers=report.numbers,
            outcomes=job.outcomes or {},
            links=links(job.id),
        )

    sent = {"sha256": digest, "query": str(request.url.query)}
    return idempotency_keys.created(context, request, who, key, sent, make, status=201)


def _build(session: Session, name: str | None, commit: Commit | None) -> Build:
    """Return the build; a registered one keeps its branch and order."""
    name = name or (commit.sha[:SHA_SHOWN] if commit else UNKNOWN)
    registered = builds.get(session, name)
    if registered is not None:
        return Build(name, IMPORT_EXECUTOR, registered.branch, registered.sequence)
    return known_build(name) or Build(name, IMPORT_EXECUTOR, BRANCH)


def _commit(repository: str | None, sha: str | None, pull_request: int | None) -> Commit | None:
    if sha is None and repository is None and pull_request is None:
        return None
    if sha is None or repository is None:
        missing = "sha" if sha is None else "repository"
        raise FieldError(
            missing, None, "is required", limit="both repository and sha, or no commit"
        )
    return Commit(repository=repository, sha=sha, pull_request=pull_request)


def _commit_of(report: TestReport) -> Commit | None:
    """Return the file's commit if it is valid; an invalid one doesn't prevent the import."""
    given = report.commit or {}
    for names in (("repository", "sha", "pull_request"), ("repository", "sha")):
        with suppress(FieldError):
            return Commit.parse({name: given.get(name) for name in names})
    return None


def _labels(given: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for number, text in enumerate(given):
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(NAME, name) or len(name) > 64 or len(value) > MAX_LABEL:
            limit = (
                f"name=value; the name {NAME}, at most 64 characters, the value at most {MAX_LABEL}"
            )
            raise FieldError(f"label.{number}", text, "is not a valid label", limit=limit)
        labels[name] = value
    return labels


class _Named(Strict):
    """The names that a file in the format `gonogo` gives its run, in its first line."""

    build: Name | None = None
    labels: Labels = Field({})


def _check_names(report: TestReport, build: str | None) -> None:
    """Raise FieldError for a label, or a build where none is given, that can't be stored."""
    given = None if build else report.build or None
    _Named.parse({"build": given, "labels": dict(report.labels)}, "lines.1")
