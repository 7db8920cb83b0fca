"""Files in: the report of a run that happened elsewhere becomes a finished job."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.reports import reading
from gonogo.reports.cases import TestReport
from gonogo.reports.rows import rows_of
from gonogo.spec.builds import known_build
from gonogo.spec.selections import MAX_NAME, Selection
from gonogo_service.access.context import Ctx, Submitter
from gonogo_service.api import idempotency_keys
from gonogo_service.api.jobs.jobs import links
from gonogo_service.kit.answers import Links, make_router
from gonogo_service.submission.bodies import MAX_LABELS, NAME, WORD
from gonogo_storage.access import audit
from gonogo_storage.automation import imports
from gonogo_storage.catalogue import builds
from gonogo_storage.db.states import JobKind

router = make_router("jobs")
LINE = "imported"
UNKNOWN = "unknown"
SHA_SHOWN = 12
MAX_LABEL = 200
Format = Literal["junit", "gtest-xml", "gtest-json", "ctrf", "gonogo"]
Suite = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_NAME,
        description="names the history; default: the file's own name",
    ),
]


class ImportAccepted(BaseModel):
    """The answer to an import: the job that it became."""

    id: str
    kind: JobKind
    verdict: str | None
    tests: int
    numbers: bool
    outcomes: dict[str, int]
    links: Links


async def _raw(request: Request) -> bytes:
    """The body as it came: what it is, the parameter `format` says, not the Content-Type."""
    return await request.body()


_BODY = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@router.post(
    "/imports",
    status_code=201,
    responses={201: {"model": ImportAccepted}},
    response_class=Response,
    openapi_extra={"requestBody": _BODY},
    summary="Import the report of a run that happened elsewhere",
)
def take(
    context: Ctx,
    who: Submitter,
    request: Request,
    data: Annotated[bytes, Depends(_raw)],
    format: Annotated[Format, Query(description="what the body is")],
    suite: Suite = None,
    build: Annotated[
        str | None,
        Query(pattern=NAME, max_length=200, description="default: the file's, else its commit's"),
    ] = None,
    arch: Annotated[str, Query(pattern=WORD, max_length=64)] = "any",
    board: Annotated[str, Query(pattern=WORD, max_length=64)] = "any",
    label: Annotated[
        list[str] | None, Query(max_length=MAX_LABELS, description="`name=value`, repeatable")
    ] = None,
    repository: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9._/-]+$", max_length=200)] = None,
    sha: Annotated[str | None, Query(pattern=r"^[0-9a-fA-F]{7,64}$")] = None,
    pull_request: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    key: idempotency_keys.Key = None,
) -> Response:
    """Red and green of JUnit, gtest and CTRF become `not_judged` tests: history without numbers.
    Those of format `gonogo` are judged.
    """
    digest = hashlib.sha256(data).hexdigest()

    def make(session: Session) -> idempotency_keys.Answer:
        commit = _commit(repository, sha, pull_request) or _commit_of(report)
        new = _new(session, report, Selection(suite=suite or report.suite or format), build, commit)
        job = imports.create(
            session,
            imports.NewImport(
                **new,
                arch=arch,
                board=board,
                rows=rows,
                source={
                    "format": format,
                    "tool": report.tool,
                    "tests": len(report.cases),
                    "numbers": report.numbers,
                    "bytes": len(data),
                    "sha256": digest,
                    "started_at": report.started_at,
                },
                labels={**_labels_of(report), **_labels(label or [])},
                commit=commit,
                owner=who.name,
            ),
        )
        told = {"format": format, "build": job.build, "tests": len(report.cases), "sha256": digest}
        audit.record(session, actor=who.actor, action="import.created", subject=job.id, detail=told)
        where = links(job.id)
        body: dict[str, Any] = {
            "id": job.id,
            "kind": job.kind.value,
            "verdict": job.verdict,
            "tests": len(report.cases),
        }
        body |= {"numbers": report.numbers, "outcomes": job.outcomes or {}, "links": where}
        return 201, body, {"Location": where["self"]}

    report = reading.read(
        data, format, max_elements=context.settings.max_elements
    )  # before the transaction: others write meanwhile
    rows = rows_of(report)
    response, _ = idempotency_keys.once(
        context, request, who, key, {"sha256": digest, "query": str(request.url.query)}, make
    )
    context.notifier.notify()
    return response


def _new(
    session: Session,
    report: TestReport,
    suite: Selection,
    build: str | None,
    commit: dict[str, Any] | None,
) -> dict[str, Any]:
    """The test and the build: a registered one keeps its branch and order."""
    name = build or report.build or (commit["sha"][:SHA_SHOWN] if commit else UNKNOWN)
    if not re.fullmatch(NAME, name) or len(name) > 200:
        raise FieldError(
            "build", name, "has another form", limit=f"the pattern {NAME}, at most 200 characters"
        )
    registered, own = builds.get(session, name), known_build(name)
    branch, sequence = (
        (registered["branch"], registered["sequence"])
        if registered
        else (own.branch, own.sequence)
        if own
        else (LINE, 0)
    )
    return {
        "test_key": suite.key,
        "workload_key": suite.workload_key,
        "kernel": suite.kernel,
        "canonical": suite.canonical(),
        "build": name,
        "branch": branch,
        "build_sequence": sequence,
    }


def _commit(
    repository: str | None, sha: str | None, pull_request: int | None
) -> dict[str, Any] | None:
    if sha is None and repository is None:
        return None
    if sha is None or repository is None:
        missing = "sha" if sha is None else "repository"
        raise FieldError(missing, None, "is required", limit="a commit is both: repository and sha")
    return {"repository": repository, "sha": sha, "pull_request": pull_request}


def _commit_of(report: TestReport) -> dict[str, Any] | None:
    """That of the file, where it is one: what a stranger's file says wrong is no reason to refuse
    its tests.
    """
    told = report.commit or {}
    repository, sha, number = told.get("repository"), told.get("sha"), told.get("pull_request")
    fits = isinstance(repository, str) and re.fullmatch(r"[A-Za-z0-9._/-]{1,200}", repository)
    if not fits or not isinstance(sha, str) or not re.fullmatch(r"[0-9a-fA-F]{7,64}", sha):
        return None
    known = isinstance(number, int) and not isinstance(number, bool) and 1 <= number < 2**31
    return {"repository": repository, "sha": sha, "pull_request": number if known else None}


def _labels(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, text in enumerate(given):
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(NAME, name) or len(name) > 64 or len(value) > MAX_LABEL:
            limit = (
                f"name=value; the name {NAME}, at most 64 characters, the value at most {MAX_LABEL}"
            )
            raise FieldError(f"label.{number}", text, "has another form", limit=limit)
        found[name] = value
    return found


def _labels_of(report: TestReport) -> dict[str, str]:
    if len(report.labels) > MAX_LABELS:
        raise FieldError(
            "lines.1.labels", len(report.labels), "too many labels", limit=str(MAX_LABELS)
        )
    return _labels([f"{name}={value}" for name, value in report.labels.items()])
