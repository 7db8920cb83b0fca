"""A commit against its base, for CI: every test classified, with its evidence, and whether the
commit may pass.
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
from gonogo_service.kit.answers import MAX_FILTER, Cursor, Limit, answer, make_router
from gonogo_storage.comparison import comparing
from gonogo_storage.comparison.comparing import Compared
from gonogo_storage.db import paging

router = make_router("compare")
NAMES = "a build, the id of a run, `build@run`, or the commit of a registered build"
Base = Annotated[
    str, Query(min_length=1, max_length=MAX_FILTER, description=f"before the commit: {NAMES}")
]
Head = Annotated[
    str, Query(min_length=1, max_length=MAX_FILTER, description=f"with the commit: {NAMES}")
]


class SideOut(BaseModel):
    """What was found of base or of head."""

    asked: str
    builds: list[str]
    run: str | None
    jobs: int
    waiting: int = Field(description="jobs that are not over")
    more_jobs: bool = Field(description="whether older jobs were not looked at")


class GateOut(BaseModel):
    """Whether the commit may pass. `code`: 0 yes, 1 no, 3 it can't be said; `reasons`: how many
    tests of which class close the gate.
    """

    code: int
    reasons: dict[str, int]
    words: str


class RanOut(BaseModel):
    """What a test did on one side. `sick`: runs left out, by the device that was ill;
    `ended_empty`: jobs without a result, by reason.
    """

    build: str
    jobs: list[str]
    counts: dict[str, int]
    not_judged_red: int
    sick: dict[str, int]
    waiting: int
    ended_empty: dict[str, int]


class FindingOut(BaseModel):
    """One thing that is said of a test. `new`: base is known not to have had it."""

    class_: Class = Field(alias="class")
    verdict: Verdict
    sentence: str
    words: str
    new: bool
    evidence: dict[str, Any] = Field(
        description="rates of head and base, p where head is worse, the flag, how the errors compare"
    )


class ComparedOut(BaseModel):
    """A test of a comparison; `class`, `verdict` and `words` are those of its first finding."""

    name: str
    test_key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    within: str | None = Field(description="the test of a gtest or pytest selection")
    arch: str
    board: str
    context: str
    class_: Class = Field(alias="class")
    verdict: Verdict
    words: str
    findings: list[FindingOut]
    base: RanOut | None
    head: RanOut | None
    check: str | None = Field(description="the command that runs the worst of it again")
    links: dict[str, str | None] = Field(
        description="pages: of the test, and of its newest job on head and on base"
    )


class ComparisonOut(BaseModel):
    """A page of tests, what people want to read first comes first, beside what is said of all of
    them.
    """

    base: SideOut
    head: SideOut
    complete: bool = Field(description="whether every job of both sides is over")
    counts: dict[str, int] = Field(description="tests by class")
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
        Class | None, Query(alias="class", description="only tests of this class")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Waived, infrastructure, broken on base, known flaky, unknown (base was not run), new
    failure; red but right; new and known hollow passes; fixed and no longer hollow. `counts` and
    `gate` are about all tests, whatever `class` and `limit` say.
    """
    start = (paging.numbers(cursor, 1) or (0,))[0]
    with context.reading() as session:
        found = comparing.compare(session, base, head)
    tests = found.tests if class_ is None else found.of(class_)
    following = str(start + limit) if start + limit < len(tests) else None
    whole = {
        **found.to_json(),
        "gate": found.gate(fail_on).to_json(),
        "links": {"page": urls.compare(base, head)},
    }
    return answer(
        {
            **whole,
            "items": [shown(each) for each in tests[start : start + limit]],
            "next": following,
        }
    )


def shown(test: Compared) -> dict[str, Any]:
    """A test as the API shows it."""
    sides = {"head": test.head, "base": test.base}
    jobs = {
        name: urls.job(ran.jobs[0]) if ran is not None and ran.jobs else None
        for name, ran in sides.items()
    }
    return {**test.to_json(), "links": {"test": urls.history(test.place.test_key), **jobs}}
