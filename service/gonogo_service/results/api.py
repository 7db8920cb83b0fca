"""Results per seed of a job or a run: pages of JSON, or everything as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from gonogo.fields import did_you_mean
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.api.jobs import require_job
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.answers import Cursor, Limit, answer, make_router, missing
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import schema_of
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.results import seeds
from gonogo_service.results.exports import ctrf, parts
from gonogo_service.results.exports.formats import FORMATS
from gonogo_service.results.exports.parts import Export
from gonogo_service.results.outputs import OutputNumbers, TestOutcome
from gonogo_service.results.seeds import Order
from gonogo_service.suites import runs

router = make_router("jobs")
PIECE = 65_536
MAX_OUTPUTS = 1000
NDJSON = "application/x-ndjson"
_TEXT = {"type": "string"}


@dataclass(frozen=True)
class ResultOut:
    """One (seed, repeat) with its outputs, or with the tests of a selection."""

    seed: int | None
    """null if not controlled: an iteration of gtest or pytest tests"""
    iteration: int | None
    """For a selection; null for a kernel's seed"""
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    host_run: str | None
    position: int | None
    duration_ms: float | None
    kernel_s: float | None
    """Seconds of the kernel alone on its device; null where they aren't known"""
    arithmetic: str | None
    judge: str | None
    """The version of the judge"""
    message: str | None
    attempt: str
    arrival: int
    outputs: dict[str, TestOutcome | OutputNumbers]
    outputs_from: int
    """Its outputs on earlier pages: a page has at most 1000, so a large iteration has several"""
    outputs_total: int
    """All its outputs"""


@dataclass(frozen=True)
class ResultOfRun(ResultOut):
    """One (seed, repeat) of a run, with its job."""

    job: str
    build: str
    test_key: str


def _answers(line: type[ResultOut], as_json: Any, description: str) -> dict[int | str, Any]:
    """Return the media types of an export; `line` is a line of NDJSON."""
    schemas = {"text/csv": _TEXT, "application/xml": _TEXT, NDJSON: schema_of(line)}
    schemas["application/json"] = as_json
    content = {media_type: {"schema": schema} for media_type, schema in schemas.items()}
    return {200: {"content": content, "description": description}}


@router.get(
    "/jobs/{job_id}/results",
    responses=_answers(
        ResultOut,
        {"anyOf": [schema_of(Page[ResultOut]), ctrf.SCHEMA]},
        "A page, or the file; of NDJSON, the schema is that of a line",
    ),
    response_class=Response,
    summary="List results per seed",
)
def results(
    context: Ctx,
    _who: Reader,
    job_id: str,
    format: Annotated[
        str,
        Query(
            max_length=20,
            description="json (pages); csv, ndjson, junit or ctrf (everything, streamed)",
        ),
    ] = "json",
    order: Annotated[
        Order | None,
        Query(
            description="arrival: a reader of a running job misses none; seed: for a finished job"
        ),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List results as JSON pages, or stream all of them.

    By default pages are in the order of arrival. Streams are in the order of seeds once the job is
    over, and of arrival before.
    """
    _check_format(format, ("json", *FORMATS))
    if format != "json" and cursor is not None:
        raise BadField("cursor", cursor, f"{format} has no pages: it contains everything")
    with context.reading() as session:
        job = require_job(session, job_id)
        _demand_rows(job)
        if format == "json":
            by: Order = order or "arrival"
            page = seeds.page(
                session, job_id, limit=limit, cursor=cursor, order=by, most_outputs=MAX_OUTPUTS
            )
            items = [parts.public_row(job, row) for row in page.items]
            return answer({"items": items, "next": page.next})
    return _stream(Export("job", job_id, parts.parts(context, [(None, job_id)], order)), format)


@router.get(
    "/runs/{run_id}/results",
    tags=["runs"],
    responses=_answers(
        ResultOfRun, ctrf.SCHEMA, "The file; of NDJSON, the schema is that of a line"
    ),
    response_class=Response,
    summary="Export the results of a run",
)
def of_run(
    context: Ctx,
    _who: Reader,
    run_id: str,
    format: Annotated[
        str,
        Query(max_length=20, description="csv, ndjson, junit or ctrf: everything, streamed"),
    ] = "ndjson",
) -> Response:
    """Stream the results job by job, in the order of the suite.

    For an unfinished run it contains the results that exist when each job is read.
    """
    _check_format(format, tuple(FORMATS))
    with context.reading() as session:
        run = runs.get(session, run_id)
        for job in jobs.many(session, [] if run is None else [m.id for m in run[1]]).values():
            _demand_rows(job)
    if run is None:
        raise missing("run", run_id)
    members = [(member.name, member.id) for member in run[1]]
    return _stream(Export("run", run_id, parts.parts(context, members)), format)


def _check_format(name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        reason = "unknown format" + did_you_mean(name, allowed)
        raise BadField("format", name, reason, limit="one of " + ", ".join(allowed))


def _demand_rows(job: JobRow) -> None:
    """Raise Problem 410 for a job whose rows are gone: no rows would look like no results."""
    if job.seeds_removed_at is not None:
        raise Problem(410, f"Job {job.id}: {job.removed[-1]}", slug="removed")


def _pieces(content: Iterable[str]) -> Iterator[bytes]:
    """Yield larger pieces, because each piece goes through the thread pool separately."""
    waiting = bytearray()
    for piece in content:
        waiting += piece.encode()
        if len(waiting) >= PIECE:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


def _stream(export: Export, name: str) -> Response:
    form = FORMATS[name]
    headers = {"Content-Disposition": f'attachment; filename="{export.id}.{form.suffix}"'}
    return StreamingResponse(
        _pieces(form.write(export)), media_type=form.media_type, headers=headers
    )
