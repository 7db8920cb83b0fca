"""Comparison of a commit with its base, for CI.

Every test is classified with its evidence. The gate says whether the commit may pass.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, Field

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.gating import FailOn
from gonogo.spec.verdicts import Verdict
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.jobs.schemas import FlipsOut
from gonogo_service.kit.answers import MAX_FILTER, Cursor, Limit, answer, make_router
from gonogo_storage.comparison import comparing
from gonogo_storage.comparison.comparing import Compared
from gonogo_storage.db import paging

router = make_router("compare")
NAMES = "a build, a run ID, `build@run`, or the commit of a registered build"
Base = Annotated[
    str, Query(min_length=1, max_length=MAX_FILTER, description=f"Before the commit: {NAMES}")
]
Head = Annotated[
    str, Query(min_length=1, max_length=MAX_FILTER, description=f"With the commit: {NAMES}")
]


class SideOut(BaseModel):
    """The builds, run and jobs of base or head."""

    requested: str = Field(alias="asked", description="The requested name")
    builds: list[str]
    run: str | None
    jobs: int
    waiting: int = Field(description="Jobs that are not over")
    more_jobs: bool = Field(description="Whether older jobs were not read")


class GateOut(BaseModel):
    """The gate's answer: whether the commit may pass.

    `code` is 0 for yes, 1 for no, 3 for unknown. `reasons` counts the blocking tests by class.
    """

    code: int
    reasons: dict[str, int]
    words: str


class RanOut(BaseModel):
    """The results of a test on one side.

    `sick` are excluded runs by sick device. `ended_empty` are jobs without a result, by reason.
    """

    build: str
    jobs: list[str]
    counts: dict[str, int]
    not_judged_red: int
    sick: dict[str, int]
    waiting: int
    ended_empty: dict[str, int]


class FindingOut(BaseModel):
    """A finding about a test. `new` says that base is known not to have it."""

    class_: Class = Field(alias="class")
    verdict: Verdict
    sentence: str
    words: str
    new: bool
    evidence: dict[str, Any] = Field(
        description=(
            "Rates of head and base, p where head is worse, the flag, the comparison of errors"
        )
    )


class PairOut(BaseModel):
    """The newest job of a test that has head's build and base's as `reference`."""

    job: str
    build: str
    reference: str
    flips: list[FlipsOut]


class ComparedOut(BaseModel):
    """A test of a comparison; `class`, `verdict` and `words` are those of its first finding."""

    name: str
    test_key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    within: str | None = Field(description="Test of a gtest or pytest selection")
    arch: str
    board: str
    context: str
    class_: Class = Field(alias="class")
    verdict: Verdict
    words: str
    findings: list[FindingOut]
    base: RanOut | None
    head: RanOut | None
    check: str | None = Field(description="Command that runs the worst seed again")
    pair: PairOut | None = Field(
        description="Head's build against base's on equal seeds, if a job compared them"
    )
    links: dict[str, str | None] = Field(
        description="Pages of the test, and of its newest job on head and on base"
    )


class ComparisonOut(BaseModel):
    """A page of tests, the most important first, with the result for all tests."""

    base: SideOut
    head: SideOut
    complete: bool = Field(description="Whether every job of both sides is over")
    counts: dict[str, int] = Field(description="Tests by class")
    words: str
    tests: int
    policy: str
    gate: GateOut
    links: dict[str, str]
    items: list[ComparedOut]
    next: str | None


@router.get(
    "/compare",
    responses={200: {"model": ComparisonOut}},
    response_class=Response,
    summary="Classify a commit's tests for CI",
)
def compare(
    context: Ctx,
    _who: Reader,
    base: Base,
    head: Head,
    fail_on: FailOn = FailOn.new,
    class_: Annotated[
        Class | None, Query(alias="class", description="Only tests of this class")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Classify every test of head against base.

    Classes: waived, infrastructure, broken on base, known flaky, unknown (base was not run), new
    failure; false alarm; new and known hollow passes; fixed and no longer hollow. `counts` and
    `gate` cover all tests, whatever `class` and `limit` are.
    """
    start = (paging.numbers(cursor, 1) or (0,))[0]
    with context.reading() as session:
        comparison = comparing.compare(session, base, head)
    tests = comparison.tests if class_ is None else comparison.of(class_)
    following = str(start + limit) if start + limit < len(tests) else None
    whole = {
        **comparison.to_json(),
        "gate": comparison.gate(fail_on).to_json(),
        "links": {"page": urls.compare(base, head)},
    }
    return answer(
        {
            **whole,
            "items": [_with_links(test) for test in tests[start : start + limit]],
            "next": following,
        }
    )


def _with_links(test: Compared) -> dict[str, Any]:
    sides = {"head": test.head, "base": test.base}
    jobs = {
        name: urls.job(ran.jobs[0]) if ran is not None and ran.jobs else None
        for name, ran in sides.items()
    }
    return {**test.to_json(), "links": {"test": urls.history(test.place.test_key), **jobs}}
