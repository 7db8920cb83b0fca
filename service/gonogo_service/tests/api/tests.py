"""Tests: grades, causes, change points and history of each variant; and histories of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy.orm import Session

from gonogo.cli.kit.noun import Noun
from gonogo.flakiness.attribution import Attribution
from gonogo.flakiness.grades import Grade
from gonogo.flakiness.masking import BuildChange
from gonogo.flakiness.samples import Sample
from gonogo_service.flags.api import FLAG_SUMMARY, FLAGS
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.kit import rows
from gonogo_service.kit.answers import (
    MAX_FILTER,
    Cursor,
    Filter,
    Limit,
    missing,
    require,
)
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.kit.resource import Resource
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import assessments, test_specs, trends
from gonogo_service.tests import samples as stored_samples
from gonogo_service.tests.assessments import AssessmentSource, BuildHistory, Rates
from gonogo_service.tests.build_series import Over
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.test_specs import BuildResults, PastJob
from gonogo_service.tests.trends import METRICS, Trend
from gonogo_service.tests.variants import PLACE, Variant, jobs_of

TEST = rows.extended_answer(TestSpecRow, "StoredTest")
NOUN = Noun("tests", {}, "a test", key="key", filters={"kernel": "Only those of this kernel."})
router = Resource(NOUN, TestSpecRow, answer=TEST, has_one=False).router
MAX_FLAGS = 100
MAX_VARIANTS = 8
"""Maximum number of graded variants in an answer: those that ran last. Others are only named."""
MAX_NAMED = 20
MAX_SAMPLES = 500


@dataclass(frozen=True)
class VariantOut:
    """A variant of a test: a branch on one kind of board."""

    branch: str
    arch: str
    board: str


@dataclass(frozen=True)
class GradedVariant(Rates):
    """A test on one branch and one kind of board; the grade is for `build`, the newest one."""

    branch: str
    arch: str
    board: str
    build: str | None
    grade: Grade
    builds: list[BuildHistory]
    extent: ReadExtent
    assessed: AssessmentSource


HISTORY: Any = rows.extended_answer(
    TestSpecRow,
    "TestHistory",
    variants=(
        list[GradedVariant],
        "With grade, rates and builds; main's first, then the one that ran last",
    ),
    more_variants=(list[VariantOut], "Not graded here: filter by branch, arch and board"),
    builds=(list[BuildResults], "Over all variants, the newest build first"),
    flags=list[FLAG_SUMMARY],
)


@dataclass(frozen=True, kw_only=True)
class AttributionOut(Attribution):
    """The cause, every factor with its evidence, and the tables.

    `causes` are all causes that hold; `cause` is the first one. `samples` are the newest runs,
    newest first. `extent` says how many runs the answer is based on.
    """

    key: str
    variant: VariantOut
    variants: list[VariantOut]
    build: str | None
    sentence: str
    samples: list[Sample]
    extent: ReadExtent
    assessed: AssessmentSource


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


@dataclass(frozen=True)
class PlaceQuery:
    """The branch, architecture and board of a query; None matches anything."""

    branch: Annotated[str | None, Query(max_length=MAX_FILTER, description="Branch")] = None
    arch: Annotated[str | None, Query(max_length=MAX_FILTER)] = None
    board: Annotated[str | None, Query(max_length=MAX_FILTER)] = None

    def variants(self, known: Sequence[Variant]) -> list[Variant]:
        """Return the variants of a test that match, in their order.

        Raises Problem 404 where the test never ran there; it names the known variants.
        """
        given = {name: value for name in PLACE if (value := getattr(self, name)) is not None}
        matches = [one for one in known if one.place.items() >= given.items()]
        if matches or not given:
            return matches
        named = "; ".join(", ".join(one.place.values()) for one in known[:MAX_NAMED])
        errors = [
            {"field": name, "value": value, "limit": named, "message": "the test never ran there"}
            for name, value in given.items()
        ]
        title = f"The test never ran on {', '.join(given.values())}."
        raise Problem(404, title, slug="not-found", errors=errors)

    def chosen(self, session: Session, key: str) -> tuple[Variant, list[VariantOut]]:
        """Return (the first of the requested variants, all variants of the test).

        Raises Problem 404 for an unknown test, or a variant that never ran.
        """
        every = assessments.variants(session, key)
        if not every:
            raise missing("test", key)
        return self.variants(every)[0], [VariantOut(**one.place) for one in every]


Place = Annotated[PlaceQuery, Depends()]


@router.get(
    "/tests/{key}",
    response_model=HISTORY,
    summary="Show a test: grade, rates, history per build",
)
def show(context: Ctx, _who: Reader, key: str, place: Place) -> Any:
    """Show the first variants of a test, or those that `branch`, `arch` and `board` select.

    Rates have Jeffreys' intervals over whole jobs.
    """
    with context.reading() as session:
        test = require(session.get(TestSpecRow, key), "test", key)
        raised = FLAGS.page(session, test=key, limit=MAX_FLAGS)
        variants = place.variants(assessments.variants(session, key))
        return rows.values(
            HISTORY,
            test,
            variants=[_graded(session, variant) for variant in variants[:MAX_VARIANTS]],
            more_variants=[VariantOut(**variant.place) for variant in variants[MAX_VARIANTS:]],
            builds=test_specs.builds_of(session, key),
            flags=[FLAG_SUMMARY.model_validate(flag) for flag in raised.items],
        )


def _graded(session: Session, variant: Variant) -> GradedVariant:
    jobs = jobs_of(session, variant)
    status, rates = assessments.status(session, variant, jobs=jobs), assessments.rates(jobs)
    return GradedVariant(
        **vars(rates),
        branch=variant.branch,
        arch=variant.arch,
        board=variant.board,
        build=status.build,
        grade=status.grade,
        builds=assessments.builds(jobs),
        extent=status.extent,
        assessed=status.assessed,
    )


@router.get("/tests/{key}/attribution", summary="Explain why a test's outcomes differ")
def attribution(
    context: Ctx,
    _who: Reader,
    key: str,
    place: Place,
    build: Filter = None,
    samples: Annotated[
        int, Query(ge=0, le=MAX_SAMPLES, description="Number of the newest runs to list")
    ] = 100,
) -> AttributionOut:
    """Explain the outcomes of one variant on its newest build, or on the named one.

    Without `branch`, `arch` and `board` it is the variant that ran last. `contexts` is the table of
    isolation against groups: pass rates with intervals, and the exact test of each row against
    `isolated`.
    """
    with context.reading() as session:
        variant, variants = place.chosen(session, key)
        status = assessments.status(session, variant, build=build)
        newest: list[Sample] = []
        if status.build:
            history = stored_samples.read(session, variant, build=status.build, seeds=samples)
            newest = stored_samples.of_runs(history.runs)[::-1]
    return AttributionOut(
        **vars(status.attribution),
        key=key,
        variant=VariantOut(**variant.place),
        variants=variants,
        build=status.build,
        sentence=status.attribution.cause.sentence,
        samples=newest,
        extent=status.extent,
        assessed=status.assessed,
    )


@router.get("/tests/{key}/changes", summary="List change points of a test")
def changes(
    context: Ctx,
    _who: Reader,
    key: str,
    place: Place,
    over: Over = "builds",
    metric: Annotated[str | None, Query(json_schema_extra={"enum": list(METRICS)})] = None,
) -> TrendOut:
    """List change points over builds in order, or over days (UTC).

    A change has an interval of builds or days. Numbers are those of the workload, so that a test
    with a new tolerance keeps its history; rates are the test's.
    """
    metric = trends.DEFAULT_METRIC if metric is None else metric
    if metric not in METRICS:
        reason, allowed = "there is no series of this statistic", "one of " + ", ".join(METRICS)
        raise BadField("metric", metric, reason, limit=allowed)
    with context.reading() as session:
        variant, variants = place.chosen(session, key)
        trend = trends.read(session, variant, over=over, metric=metric)
    return TrendOut(**vars(trend), key=key, variant=VariantOut(**variant.place), variants=variants)


@router.get("/tests/{key}/comparison", summary="Compare two builds: fixed or masked?")
def comparison(
    context: Ctx,
    _who: Reader,
    key: str,
    place: Place,
    base: Filter = None,
    head: Filter = None,
) -> BuildComparisonOut:
    """Compare two builds by digests, then by explanations, then by the faults that are named.

    The default for `head` is the newest build, and for `base` the build before it. A build without
    judged seeds gives `unknown`.
    """
    with context.reading() as session:
        variant, _ = place.chosen(session, key)
        change = trends.compare(session, variant, base, head)
    where, sentence = VariantOut(**variant.place), change.change.sentence
    return BuildComparisonOut(**vars(change), key=key, variant=where, sentence=sentence)


@router.get("/workloads/{workload_key}/history", summary="List a workload's history")
def history(
    context: Ctx, _who: Reader, workload_key: str, limit: Limit = 200, cursor: Cursor = None
) -> Page[PastJob]:
    """List every finished job, whatever its tolerance, newest first."""
    with context.reading() as session:
        if not test_specs.has_workload(session, workload_key):
            raise missing("workload", workload_key)
        return test_specs.history(session, workload_key, limit=limit, cursor=cursor)
