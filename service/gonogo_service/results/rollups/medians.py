"""The median error of variants on some builds, from the roll-ups. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness import sketches
from gonogo.flakiness.sketches import Sketch
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.rollups.tallies import WHOLE
from gonogo_service.results.rows import DayRollupRow
from gonogo_service.tests.variants import Variant

METRIC = "rms"
"""The error of an output, whatever its tolerance."""
_AT_ONCE = 200
"""Tests that one statement reads."""


def read(
    session: Session, builds: Mapping[Variant, tuple[str, ...]]
) -> dict[tuple[Variant, str], dict[str, float]]:
    """Return (variant, build) -> output -> the median of METRIC over its seeds.

    Outputs without a number are left out.
    """
    table = DayRollupRow
    names = sorted({build for of_variant in builds.values() for build in of_variant})
    parts: dict[tuple[Variant, str], dict[str, list[Sketch]]] = {}
    for keys in batched(sorted({variant.test_key for variant in builds}), _AT_ONCE):
        content: Any = table.sketches[METRIC]
        query = select(
            table.test_key,
            table.branch,
            table.arch,
            table.board,
            table.build,
            table.output,
            content,
        ).where(
            table.test_key.in_(keys),
            table.build.in_(names),
            table.output != WHOLE,
            table.shadow.is_(False),
        )
        for *place, build, output, stored in session.execute(query):
            variant = Variant(*place)
            if stored and build in builds.get(variant, ()):
                of_build = parts.setdefault((variant, build), {})
                of_build.setdefault(output, []).append(Sketch.parse(stored))
    return {
        place: {
            output: median
            for output, of_output in outputs.items()
            if (median := sketches.total(of_output).quantile(0.5)) is not None
        }
        for place, outputs in parts.items()
    }
