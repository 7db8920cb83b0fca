"""Change points of a test over builds or days, and comparisons of two builds.

A comparison says whether the kernel was fixed, masked, or unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from gonogo.flakiness.masking import BuildChange
from gonogo_service.kit.answers import Filter, make_router
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.problems import BadField
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import trends
from gonogo_service.tests.api.schemas import VariantOut, shape
from gonogo_service.tests.api.tests import Arch, Board, Branch, chosen
from gonogo_service.tests.points import METRICS
from gonogo_service.tests.trends import Trend

router = make_router("tests")


@dataclass(frozen=True)
class TrendOut(Trend):
    """Points in order, and the changes between them."""

    key: str
    variant: VariantOut
    variants: list[VariantOut]


@dataclass(frozen=True)
class BuildComparisonOut(BuildChange):
    """Two builds of one variant, and the meaning of `change`."""

    key: str
    variant: VariantOut
    sentence: str


@router.get(
    "/tests/{key}/changes",
    summary="List change points of a test",
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
) -> TrendOut:
    """List change points over builds in order, or over days (UTC).

    A change has an interval of builds or days. Numbers are those of the workload, so that a test
    with a new tolerance keeps its history; rates are the test's.
    """
    chosen_metric = trends.DEFAULT_METRIC if metric is None else metric
    if chosen_metric not in METRICS:
        raise BadField(
            "metric",
            chosen_metric,
            "there is no series of this statistic",
            limit="one of " + ", ".join(METRICS),
        )
    with context.reading() as session:
        variant, variants = chosen(session, key, branch, arch, board)
        trend = trends.read(session, variant, over=over, metric=chosen_metric)
    return from_object(
        TrendOut,
        trend,
        key=key,
        variant=shape(variant),
        variants=[shape(other) for other in variants],
    )


@router.get(
    "/tests/{key}/comparison",
    summary="Compare two builds: fixed or masked?",
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
) -> BuildComparisonOut:
    """Compare two builds by digests, then by explanations, then by the faults that are named.

    The default for `head` is the newest build, and for `base` the build before it. A build without
    judged seeds gives `unknown`.
    """
    with context.reading() as session:
        variant, _ = chosen(session, key, branch, arch, board)
        change = trends.compare(session, variant, base, head)
    return from_object(
        BuildComparisonOut,
        change,
        key=key,
        variant=shape(variant),
        sentence=change.change.sentence,
    )
