"""The attribution of flakiness: its cause, the tables by context and device, and the runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel, Field

from gonogo.flakiness.attribution import Cause
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.tests.schemas import (
    Configuration,
    Extent,
    FactorOut,
    RateOut,
    SampleOut,
    Source,
    VariantOut,
)
from gonogo_service.api.tests.tests import Arch, Board, Branch, chosen, shape
from gonogo_service.kit.answers import Filter, answer, make_router
from gonogo_storage.history import samples as stored
from gonogo_storage.history import variant_status

router = make_router("tests")
MAX_SAMPLES = 500


class AttributionOut(BaseModel):
    """The cause, every factor with its evidence, and the tables.

    `causes` are all causes that hold; `cause` is the first one. `samples` are the newest runs,
    newest first. `looked` says how many runs the answer is based on.
    """

    key: str
    variant: VariantOut
    variants: list[VariantOut]
    build: str | None
    cause: Cause
    sentence: str
    words: str
    causes: list[Cause]
    findings: list[FactorOut]
    failures: RateOut
    infrastructure: RateOut
    contexts: list[Configuration]
    devices: list[Configuration]
    samples: list[SampleOut]
    extent: Extent = Field(alias="looked")
    assessed: Source
    policy: str
    repeated: int = Field(
        default=0, description="Runs that repeat another run bit for bit; they count in no rate"
    )


@router.get(
    "/tests/{key}/attribution",
    responses={200: {"model": AttributionOut}},
    response_class=Response,
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
) -> Response:
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
    return answer(
        {
            "key": key,
            "variant": shape(variant),
            "variants": [shape(other) for other in variants],
            "build": status.build,
            **status.attribution,
            "sentence": Cause(status.attribution["cause"]).sentence,
            "samples": [
                {**run._asdict(), "outcome": run.outcome.value} for run in reversed(newest_runs)
            ],
            "looked": status.extent,
            "assessed": {"source": status.source, "at": status.at},
        }
    )
