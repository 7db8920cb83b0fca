"""Results of a job per seed: pages of JSON, or everything as a stream of CSV or NDJSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from gonogo.selections import sample
from service.api.answers import Cursor, Limit, answer_page, make_router
from service.api.jobs import found
from service.context import Context, Ctx, Reader
from service.problems import BadField
from storage import results as stored
from storage.encoding import encode

router = make_router("jobs")
FORMATS = ("json", "csv", "ndjson")
STREAM_PAGE = 500
Order = Literal["arrival", "seed"]
OfSeed = (
    "seed", "iteration", "repeat", "verdict", "explanation", "device", "host_run", "position", "duration_ms", "profile", "policy",
    "message",
)  # fmt: skip
STATISTICS = (
    "tolerance_ratio", "budget_ratio", "chi", "max_abs", "mean_abs", "rms", "rel_frobenius", "pcc_deficit", "ulp_max", "ulp_p99",
    "mismatch_fraction", "tolerance_ratio_quantised", "over_budget_fraction", "row_z", "xhat_z", "scale_z", "col_z", "outliers",
    "rows_left_out", "count", "digest",
)  # fmt: skip
"""Columns of the CSV; what else an output has stands as JSON in the last column."""
IN_COLUMNS = frozenset({"verdict", "explanation", "outcome", *STATISTICS})


class ResultOut(BaseModel):
    """One (seed, repeat); `outputs` holds verdict, explanation and statistics of each output."""

    seed: int | None = Field(description="null: not controlled; an iteration of tests that exist already")
    iteration: int | None = Field(description="of a selection; null for a kernel's seed")
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    host_run: str | None
    position: int | None
    duration_ms: float | None
    profile: str | None
    policy: str | None
    message: str | None
    attempt: str
    arrival: int
    outputs: dict[str, dict[str, Any]]


class ResultPage(BaseModel):
    """A page of results."""

    items: list[ResultOut]
    next: str | None


@router.get(
    "/jobs/{job_id}/results",
    responses={200: {"model": ResultPage, "content": {"text/csv": {}, "application/x-ndjson": {}}}},
    response_class=Response,
    summary="Results per seed",
)
def results(
    context: Ctx,
    _who: Reader,
    job_id: str,
    format: Annotated[str, Query(max_length=20, description="json (pages); csv or ndjson (everything, streamed)")] = "json",
    order: Annotated[Order | None, Query(description="arrival: a reader of a live job misses none; seed: for one that is over")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Pages come by arrival unless asked otherwise; streams by seed once the job is over, by arrival before."""
    if format not in FORMATS:
        raise BadField("format", format, "unknown format", limit="one of " + ", ".join(FORMATS))
    if format != "json" and cursor is not None:
        raise BadField("cursor", cursor, f"{format} is not paged: it holds everything")
    with context.reading() as session:
        job = found(session, job_id)

        def shown(row: dict[str, Any]) -> dict[str, Any]:
            return {**sample(job.canonical, row["seed"]), **{name: value for name, value in row.items() if name != "seed"}}

        if format == "json":
            return answer_page(stored.page(session, job_id, limit=limit, cursor=cursor, order=order or "arrival"), shown)
    rows = map(shown, _all(context, job_id, order or ("seed" if job.state.final else "arrival")))
    if format == "ndjson":
        return _stream((encode(row) + "\n" for row in rows), "application/x-ndjson", f"{job_id}.ndjson")
    return _stream(_csv(rows), "text/csv; charset=utf-8", f"{job_id}.csv")


def _stream(texts: Iterable[str], media_type: str, name: str) -> Response:
    return StreamingResponse(texts, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _all(context: Context, job_id: str, order: Order) -> Iterator[dict[str, Any]]:
    """Every result, a page per transaction: a slow reader holds no connection and no snapshot of the database."""
    cursor: str | None = None
    while True:
        with context.reading() as session:
            page = stored.page(session, job_id, limit=STREAM_PAGE, cursor=cursor, order=order)
        yield from page.items
        if page.next is None:
            return
        cursor = page.next


def _csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """One line per output, and of a selection per test; a seed without numbers (hang, crash, error) has one with an empty output."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*OfSeed, "output", "output_verdict", "output_explanation", "outcome", *STATISTICS, "other"])
    for number, row in enumerate(rows, 1):
        head = [_cell(row[name]) for name in OfSeed]
        outputs: dict[str, dict[str, Any]] = row["outputs"]
        for name, judged in outputs.items():
            rest = {key: value for key, value in judged.items() if key not in IN_COLUMNS and value is not None}
            statistics = [_cell(judged.get(key)) for key in STATISTICS]
            said = [_cell(name), judged["verdict"], judged["explanation"], judged.get("outcome")]
            writer.writerow([*head, *said, *statistics, encode(rest) if rest else None])
        if not outputs:
            writer.writerow([*head, "", row["verdict"], row["explanation"], None, *[None] * len(STATISTICS), None])
        if number % 50 == 0:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet must not take a kernel's message for a formula; numbers are written as they are."""
    return "'" + value if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"} else value
