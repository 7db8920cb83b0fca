"""Since when? Change points of a test over builds or days, and two of its builds against each
other: masked, fixed, or unchanged.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel, Field

from gonogo.flakiness.masking import Change
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.tests.schemas import BuildChangeOut, ChangesOut, PointOut, VariantOut
from gonogo_service.api.tests.tests import Arch, Board, Branch, chosen, shape
from gonogo_service.kit.answers import Filter, answer, make_router
from gonogo_service.kit.problems import BadField
from gonogo_storage.history import trends
from gonogo_storage.history.build_series import METRICS

router = make_router("tests")


class TrendOut(BaseModel):
    """Points in order, and what changed between them."""

    key: str
    variant: VariantOut
    variants: list[VariantOut]
    over: trends.Over
    metric: str
    points: list[PointOut]
    numbers: dict[str, ChangesOut] = Field(
        description="by output: change points of the logarithm of `metric`"
    )
    rates: ChangesOut = Field(description="change points of the failure rate")
    steps: list[BuildChangeOut] = Field(
        description="each build against the nearest earlier one that was judged; empty over days"
    )


class ComparisonOut(BuildChangeOut):
    """Two builds of one variant, and the meaning of `change`."""

    key: str
    variant: VariantOut
    sentence: str


@router.get(
    "/tests/{key}/changes",
    responses={200: {"model": TrendOut}},
    response_class=Response,
    summary="Change points of a test",
)
def changes(
    context: Ctx,
    _who: Reader,
    key: str,
    branch: Branch = None,
    arch: Arch = None,
    board: Board = None,
    over: trends.Over = "builds",
    metric: Annotated[str | None, Query(json_schema_extra={"enum": list(METRICS)})] = None,
) -> Response:
    """Over builds in their order, or over days (UTC). A change has the interval of its place, in
    the names of builds or days.

    Numbers are those of the workload, so that a test that takes another tolerance keeps its past;
    rates are the test's own.
    """
    wanted = trends.DEFAULT_METRIC if metric is None else metric
    if wanted not in METRICS:
        raise BadField(
            "metric",
            wanted,
            "no series of this statistic is kept",
            limit="one of " + ", ".join(METRICS),
        )
    with context.reading() as session:
        variant, variants = chosen(session, key, branch, arch, board)
        found = trends.read(session, variant, over=over, metric=wanted)
    return answer(
        {
            "key": key,
            "variant": shape(variant),
            "variants": [shape(each) for each in variants],
            **found,
        }
    )


@router.get(
    "/tests/{key}/comparison",
    responses={200: {"model": ComparisonOut}},
    response_class=Response,
    summary="Fixed between two builds, or masked?",
)
def comparison(
    context: Ctx,
    _who: Reader,
    key: str,
    base: Filter = None,
    head: Filter = None,
    branch: Branch = None,
    arch: Arch = None,
    board: Board = None,
) -> Response:
    """By digests, then by forensic coefficients, then by the statistics that explain. Without
    `head` the newest build, without `base` the one before it; a build without judged seeds gives
    `unknown`.
    """
    with context.reading() as session:
        variant, _ = chosen(session, key, branch, arch, board)
        found = trends.compare(session, variant, base, head)
    sentence = Change(found.change).sentence
    return answer({"key": key, "variant": shape(variant), "sentence": sentence, **found.to_json()})
