"""Gauges: measure a test with right and wrong kernels, and look at what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from gonogo.builds import EMULATOR
from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.plan import planned
from gonogo.problems import FieldError
from service.api import PREFIX, idempotency, submission
from service.api.answers import Cursor, Filter, Limit, Strict, answer, answer_page, make_router, missing
from service.api.job_schemas import MAX_DEADLINE_S, MAX_SEED, NAME, SeedRange, Target
from service.context import Ctx, Reader, Submitter
from service.problems import BadField
from settings import Settings
from storage import audit
from storage import gauges as stored
from storage.gauges import NewGauge
from storage.states import JobState

router = make_router("gauges")
MAX_BUILDS = 32
SEEDS = 3
"""By default: a logic fault shows in one seed; three tell a fault that shows on some seeds from one that does on all."""

Name = Annotated[str, Field(pattern=NAME, max_length=200)]


class GaugeIn(Strict):
    """A test of a kernel, and the variant of it that is graded: its line of builds, arch and board."""

    test: dict[str, Any] = Field(description="kernel, shape, numerics, epsilon, inputs, tolerance")
    line: Name = Field(EMULATOR, description="the line of builds whose grade and flag this is")
    target: Target = Field(Target(), description="arch and board as of a job; the executor is that of `builds` and `wrong_builds`")
    seeds: SeedRange = SeedRange(start=0, count=SEEDS)
    builds: list[Name] = Field([], max_length=MAX_BUILDS, description="builds of the executor that are right and must pass")
    wrong_builds: list[Name] = Field([], max_length=MAX_BUILDS, description="builds of the executor that are wrong and must fail")
    search: bool = Field(True, description="where no tolerance works, try other inputs, one seed each")
    priority: int = Field(5, ge=0, le=9, description="9 goes first")
    queue_deadline_s: float = Field(86400, ge=1, le=MAX_DEADLINE_S, description="a gauge that no worker has started by then fails")


class GaugeLinks(BaseModel):
    """Paths of what belongs to a gauge."""

    self: str
    test: str
    page: str


class GaugeAccepted(BaseModel):
    """The answer to a new gauge; `runs` are its parts times its seeds, `chunks` the pieces in which workers take them."""

    id: str
    state: JobState
    chunks: int
    runs: int
    links: GaugeLinks


class GaugeSummary(BaseModel):
    """A gauge in a list."""

    id: str
    state: JobState
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test: dict[str, Any]
    test_key: str
    subject_key: str
    kernel: str
    build_line: str
    target: dict[str, str]
    seeds: list[int]
    search: bool
    total: int = Field(description="runs: (seed, part); more when other inputs are tried")
    done: int
    chunks: dict[str, int]
    sharpness: Sharpness | None = Field(description="null until it is over")
    words: str | None
    created_at: str
    deadline_at: str
    started_at: str | None
    finished_at: str | None
    links: GaugeLinks


class GaugeOut(GaugeSummary):
    """A gauge with its parts and its report: that of `gonogo gauge --json`, and the line that measures it again."""

    parts: list[dict[str, Any]]
    elsewhere: list[dict[str, Any]]
    report: dict[str, Any] | None


class GaugePage(BaseModel):
    """A page of gauges, newest first."""

    items: list[GaugeSummary]
    next: str | None


@router.post("/gauges", status_code=202, responses={202: {"model": GaugeAccepted}}, response_class=Response, summary="Measure a test")
def submit(context: Ctx, who: Submitter, request: Request, body: GaugeIn, key: idempotency.Key = None) -> Response:
    """Runs the emulator's right and known-wrong kernels, and builds of yours, on the test's seeds: false alarms, misses, window, advice."""
    check(body, context.settings)

    def make(session: Session) -> idempotency.Made:
        gauge = stored.create(session, order(session, body, context.settings, who.name))
        audit.record(session, actor=who.actor, action="gauge.created", subject=gauge["id"], detail={"test": gauge["test_key"]})
        return _accepted(gauge)

    response, new = idempotency.once(context, request, who, key, body.model_dump(mode="json"), make)
    if new:
        context.doorbell.ring()
    return response


@router.get("/gauges", responses={200: {"model": GaugePage}}, response_class=Response, summary="List gauges, newest first")
def list_gauges(
    context: Ctx,
    _who: Reader,
    test: Filter = None,
    state: JobState | None = None,
    sharpness: Sharpness | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """`test` is a test's key. Filters are combined with "and"."""
    with context.reading() as session:
        page = stored.list_(session, test=test, state=state, sharpness=sharpness, limit=limit, cursor=cursor)
    return answer_page(page, _shown)


@router.get("/gauges/{gauge_id}", responses={200: {"model": GaugeOut}}, response_class=Response, summary="Look at a gauge")
def look(context: Ctx, _who: Reader, gauge_id: str) -> Response:
    """Progress while it runs, then the report."""
    with context.reading() as session:
        gauge = stored.get(session, gauge_id)
    if gauge is None:
        raise missing("gauge", gauge_id)
    return answer(_shown(gauge))


@router.post(
    "/gauges/{gauge_id}:cancel",
    status_code=202,
    responses={202: {"model": GaugeAccepted}},
    response_class=Response,
    summary="Cancel a gauge",
)
def cancel(context: Ctx, who: Submitter, gauge_id: str) -> Response:
    """What no worker has started ends here and now, running kernels within seconds. What has run is reported; no flag changes."""
    with context.session() as session:
        before = stored.get(session, gauge_id)
        after = stored.cancel(session, gauge_id)
        if before is None or after is None:
            raise missing("gauge", gauge_id)
        if after["state"] != before["state"]:
            audit.record(session, actor=who.actor, action="gauge.cancelled", subject=gauge_id)
    context.doorbell.ring()
    status, body, headers = _accepted(after)
    return answer(body, status, headers)


def order(session: Session, body: GaugeIn, settings: Settings, owner: str) -> NewGauge:
    """The gauge to create, its builds known. Raises FieldError."""
    checked = check(body, settings)
    for field, names in (("builds", body.builds), ("wrong_builds", body.wrong_builds)):
        for place, name in enumerate(names):
            submission.build_of(session, name, body.target.executor, settings, f"{field}.{place}")
    return checked(owner)


def check(body: GaugeIn, settings: Settings) -> Callable[[str], NewGauge]:
    """Everything that can be said without the database: a function from the owner to the gauge to create. Raises FieldError."""
    if "selection" in body.test:
        raise BadField("test.selection", body.test["selection"], "only tests of kernels are gauged", limit="a test with a kernel")
    test = submission.kernel_test(body.test, settings, "test")
    executor = body.target.executor
    if executor == EMULATOR and (named := body.builds or body.wrong_builds):
        field = "builds.0" if body.builds else "wrong_builds.0"
        raise FieldError(field, named[0], "the emulator's kernels are always run", limit="a target.executor of yours, or no builds")
    parts = planned(test, executor, body.builds, body.wrong_builds)
    start, count = body.seeds.start, body.seeds.count
    # before the range is unrolled: a count of 10**15 must not cost memory
    if count * len(parts) > settings.max_gauge_runs:
        limit = f"{settings.max_gauge_runs} runs (GONOGO_MAX_GAUGE_RUNS)"
        raise FieldError("seeds.count", count, f"{count} seeds x {len(parts)} parts are too many", limit=limit)
    if start + count - 1 > MAX_SEED:
        raise FieldError("seeds", {"start": start, "count": count}, "the last seed is too large", limit=f"<= {MAX_SEED}")

    def made(owner: str) -> NewGauge:
        return NewGauge(
            test_key=test.key,
            subject_key=test.subject_key,
            kernel=test.kernel,
            canonical=test.canonical(),
            elements=test.elements,
            build_line=body.line,
            arch=body.target.arch,
            board=body.target.board,
            parts=tuple(parts),
            seeds=tuple(range(start, start + count)),
            search=body.search,
            priority=body.priority,
            queue_deadline_s=body.queue_deadline_s,
            owner=owner,
            chunk_seconds=settings.chunk_seconds,
            request=body.model_dump(mode="json", exclude={"test"}),
        )

    return made


def _links(gauge: dict[str, Any]) -> dict[str, str]:
    return {"self": f"{PREFIX}/gauges/{gauge['id']}", "test": f"{PREFIX}/tests/{gauge['test_key']}", "page": f"/gauges/{gauge['id']}"}


def _accepted(gauge: dict[str, Any]) -> idempotency.Made:
    where = _links(gauge)
    body = {"id": gauge["id"], "state": gauge["state"], "chunks": gauge["chunks"]["total"], "runs": gauge["total"], "links": where}
    return 202, body, {"Location": where["self"]}


def _shown(gauge: dict[str, Any]) -> dict[str, Any]:
    return {**gauge, "links": _links(gauge)}
