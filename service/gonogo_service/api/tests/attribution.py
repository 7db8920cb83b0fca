"""Why a test flickers: its cause, the tables by context and device, and the runs that say so."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import BaseModel

from gonogo.flakiness.attribution import Cause
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.tests.schemas import (
    Configuration,
    FactorOut,
    Looked,
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
    """The cause with its words, every factor with its evidence, and the tables. `causes` are all
    that hold, `cause` among them first.

    `samples`: the newest runs, newest first; `looked` says how many were read for the answer
    itself.
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
    looked: Looked
    assessed: Source
    policy: str


@router.get(
    "/tests/{key}/attribution",
    responses={200: {"model": AttributionOut}},
    response_class=Response,
    summary="Why a test's outcomes differ",
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
        int, Query(ge=0, le=MAX_SAMPLES, description="how many of the newest runs to list")
    ] = 100,
) -> Response:
    """Of one variant; without `branch`, `arch` and `board` of the one that ran last. Of its newest
    build, or of the one that is named.

    `contexts` is the table of isolation against groups: pass rates with intervals, and the exact
    test of each row against `isolated`.
    """
    with context.reading() as session:
        variant, variants = chosen(session, key, branch, arch, board)
        found = variant_status.read(session, variant, build=build)
        told = (
            stored.samples(stored.read(session, variant, build=found.build, seeds=samples))
            if found.build
            else []
        )
    return answer(
        {
            "key": key,
            "variant": shape(variant),
            "variants": [shape(each) for each in variants],
            "build": found.build,
            **found.attribution,
            "sentence": Cause(found.attribution["cause"]).sentence,
            "samples": [
                {**each._asdict(), "outcome": each.outcome.value} for each in reversed(told)
            ],
            "looked": found.extent,
            "assessed": {"source": found.source, "at": found.at},
        }
    )
