"""The arithmetics of each test on base and on head. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from gonogo.flakiness.arithmetic_changes import MIN_ELEMENTS, BuildPrograms, pooled
from gonogo.flakiness.classes import RunSummary
from gonogo_service.compare.comparison_side import Place, SideResults
from gonogo_service.results import arithmetics
from gonogo_service.tests.variants import JobFacts

MAX_JOBS = 2
"""Newest jobs of a test on a side that are read."""


def with_programs(
    session: Session,
    sides: Sequence[SideResults],
    results: Sequence[Mapping[Place, RunSummary]],
) -> list[dict[Place, RunSummary]]:
    """Return the results of base and head with the arithmetics found in their seeds.

    Only kernels that ran on both sides are read: a test of a gtest or pytest selection isn't one.
    """
    base, head = sides
    places = base.facts.keys() & head.facts.keys()
    return [
        {
            **summaries,
            **{
                place: replace(summaries[place], programs=programs)
                for place, programs in _read(session, side, places).items()
                if place in summaries
            },
        }
        for side, summaries in zip(sides, results, strict=True)
    ]


def _read(
    session: Session, side: SideResults, places: Iterable[Place]
) -> dict[Place, BuildPrograms]:
    jobs: dict[Place, tuple[JobFacts, ...]] = {
        place: side.facts[place][:MAX_JOBS] for place in places
    }
    ids = sorted(job.id for members in jobs.values() for job in members)
    read = arithmetics.of_jobs(session, ids, min_elements=MIN_ELEMENTS)
    programs = {}
    for place, members in jobs.items():
        stored = [read[job.id] for job in members if job.id in read]
        if stored:
            programs[place] = pooled(members[0].build, stored)
    return programs
