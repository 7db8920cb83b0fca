"""The jobs that ran head's build against base's on equal seeds (`reference`), and their flips.

Such a job is in no side's counts, since its verdict says something about two builds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.judging.flip_summary import FlipsSummary
from gonogo_service.compare.comparison_side import Place
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results import flips
from gonogo_service.tests.variants import context_name

MAX_PAIRS = 50
"""Tests whose flips are read: a few milliseconds each."""


@dataclass(frozen=True)
class BuildPair:
    """The newest job of a test that compared head's build with base's."""

    job: str
    build: str
    reference: str
    flips: tuple[FlipsSummary, ...]


def read(
    session: Session, base_builds: Sequence[str], head_builds: Sequence[str]
) -> Mapping[Place, BuildPair]:
    """Return the newest pair of each place, among the newest jobs that have results."""
    table = JobRow
    query = (
        select(
            table.id,
            table.test_key,
            table.arch,
            table.board,
            table.context,
            table.build,
            table.reference,
        )
        .where(
            table.build.in_(head_builds),
            table.reference.in_(base_builds),
            table.kind != JobKind.gauge,
            table.done > 0,
        )
        .order_by(table.id.desc())
        .limit(MAX_PAIRS)
    )
    pairs: dict[Place, BuildPair] = {}
    for row in session.execute(query):
        place = Place(row.test_key, row.arch, row.board, context_name(row.context), "")
        if place not in pairs:
            counted = flips.of_job(session, row.id)
            pairs[place] = BuildPair(row.id, row.build, row.reference, counted)
    return pairs
