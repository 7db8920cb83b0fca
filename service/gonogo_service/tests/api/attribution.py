"""The attribution of flakiness: its cause, the tables by context and device, and the runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from gonogo.flakiness.attribution import Attribution
from gonogo.flakiness.samples import Sample
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.kit.answers import Filter, make_router
from gonogo_service.kit.database.records import from_object
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import samples as stored
from gonogo_service.tests import variant_status
from gonogo_service.tests.api.schemas import VariantOut, shape
from gonogo_service.tests.api.tests import Arch, Board, Branch, chosen
from gonogo_service.tests.variant_status import AssessmentSource

router = make_router("tests")
MAX_SAMPLES = 500


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


@router.get(
    "/tests/{key}/attribution",
    summary="Explain why a test's outcomes differ",
)
def attribution(
    context: Ctx,
    _who: Reader,
    key: str,
    branch: Branch = None,
    arch: Arch = None,
    board: Board = None,
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
        variant, variants = chosen(session, key, branch, arch, board)
        status = variant_status.read(session, variant, build=build)
        newest_runs = (
            stored.samples(stored.read(session, variant, build=status.build, seeds=samples))
            if status.build
            else []
        )
    return from_object(
        AttributionOut,
        status.attribution,
        status,
        key=key,
        variant=shape(variant),
        variants=[shape(other) for other in variants],
        sentence=status.attribution.cause.sentence,
        samples=newest_runs[::-1],
    )
