"""Another judge, or another reference, is no change of a kernel: its results are no baseline."""

from __future__ import annotations

from pathlib import Path

from gonogo_service.kit.database import engine as engines
from gonogo_service.tests import build_series, trends
from gonogo_service.tests.variants import jobs_of
from stored_histories import row, variant, world
from stored_jobs import NIGHTLY


def test_builds_are_compared_with_those_that_the_same_judge_judged(tmp_path: Path) -> None:
    judges = ("2:a", None, "3:a", "3:b", "3:b")
    with world(f"sqlite:///{tmp_path / 'gonogo.sqlite'}") as here:
        for number, judge in enumerate(judges):
            rows = [row(seed, wrong=number > 2, bits=str(number)) for seed in range(4)]
            rows = [{**one, "judge": judge} for one in rows]
            here.job(rows, test=NIGHTLY, build=f"n{number}", sequence=number, assess=False)
        with engines.reading(here.engine) as session:
            jobs = jobs_of(session, variant(NIGHTLY))
            assert [job.judge for job in jobs] == list(reversed(judges))
            records = build_series.records(session, jobs)
            points = trends.read(session, variant(NIGHTLY)).points
    assert [record.build for record in records] == ["n1", "n3", "n4"]
    assert [point.name for point in points] == ["n1", "n3", "n4"]
