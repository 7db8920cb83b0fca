"""Stored trends equal computed ones, and are never used once the jobs have changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import func, select, update

from api import in_process
from gonogo.flakiness.masking import Fault
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import decode, encode
from gonogo_service.tests import build_series, trends
from gonogo_service.tests.variants import jobs_of
from records import pick
from stored_histories import World, row, spec_of, variant, world
from stored_jobs import NIGHTLY, PLACES

Test = dict[str, Any]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('trends') / 'gonogo.sqlite'}"


@pytest.fixture(scope="module")
def here(url: str) -> Iterator[World]:
    with world(url) as shared_world:
        yield shared_world


def night(
    here: World,
    number: int,
    test: Test = NIGHTLY,
    *,
    seeds: range = range(8),
    assess: bool = True,
    **changes: Any,
) -> None:
    """Store a build's job, whose bits are its own unless `changes` name some."""
    rows = [row(seed, **{"bits": str(number), **changes}) for seed in seeds]
    here.job(rows, test=test, build=f"n{number}", sequence=number, assess=assess)


def trends_of(here: World, test: Test, **chosen: Any) -> dict[str, Any]:
    with engines.reading(here.engine) as session:
        trend = trends.read(session, variant(test), **chosen)
    plain: dict[str, Any] = decode(encode(trend))
    return plain


def _refuse(*_arguments: Any, **_options: Any) -> Any:
    raise LookupError


def stored(here: World, test: Test, **chosen: Any) -> dict[str, Any] | None:
    """Return the trends without reading a seed; None where they would have to be computed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trends, "_computed", _refuse)
        try:
            return trends_of(here, test, **chosen)
        except LookupError:
            return None


def computed(here: World, test: Test, **chosen: Any) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trends, "_stored", lambda *_arguments: None)
        return trends_of(here, test, **chosen)


def changes_of(trend: dict[str, Any]) -> list[str]:
    return [step["change"] for step in trend["steps"]]


def test_what_is_stored_is_what_would_be_computed_and_is_left_when_a_job_has_come_since(
    here: World, url: str
) -> None:
    test = NIGHTLY
    for number in range(5):
        night(here, number, wrong=number >= 3)
    for over in trends.OVERS:
        trend = stored(here, test, over=over)
        assert trend == computed(here, test, over=over)
        assert trend is not None
        steps = ["right", "right", "broken", "still_wrong"]
        assert changes_of(trend) == (steps if over == "builds" else [])
    trend = trends_of(here, test)
    (change,) = trend["numbers"]["dx"]["changes"]
    assert pick(change, "at", "between") == ("n3", ["n3", "n3"])
    assert trend["numbers"]["dgamma"]["changes"] == []
    assert trend["rates"]["changes"] == []  # green all the time: verdicts alone saw nothing
    days = trends_of(here, test, over="days")["points"]
    assert [point["name"] for point in days] == [datetime.now(UTC).date().isoformat()]
    other = trends_of(here, test, metric="max_abs")
    assert pick(other, "metric", "steps") == ("max_abs", trend["steps"])
    assert other["numbers"] != trend["numbers"]

    night(here, 5, assess=False)
    assert stored(here, test) is None
    assert changes_of(trends_of(here, test))[-2:] == ["still_wrong", "fixed"]
    here.assess()
    trend = stored(here, test)
    assert trend is not None
    assert [point["name"] for point in trend["points"]] == [f"n{number}" for number in range(6)]

    key = variant(test).test_key
    with in_process(url) as api:  # the API and the page's twin say the same
        answer = api.get(f"/tests/{key}/changes")
        page = api.client.get(f"/tests/{key}.json").json()
    assert {name: answer[name] for name in trend} == trend
    shown = [pick(step, "before", "after") for step in page["steps"][::-1]]
    assert shown == [pick(step, "before", "after") for step in trend["steps"]]
    assert [change["at"] for change in answer["numbers"]["dx"]["changes"]] == ["n3", "n5"]
    assert len([change for change in page["changes"] if change["words"].startswith("dx: ")]) == 2

    newest = select(func.max(JobRow.build_sequence)).where(JobRow.test_key == key)
    late = update(JobRow).where(JobRow.build_sequence == newest.scalar_subquery())
    with engines.session(here.engine) as session:  # seeds that come after a job was over
        session.execute(late.values(done=JobRow.done + 1))
    assert stored(here, test) is None


def two_tolerances(width: int) -> tuple[Test, Test]:
    """Return a test at two tolerances; they share their past."""
    shape = {"shape": [1, 1, 32, width]}
    return {**spec_of(0.2), **shape}, {**spec_of(0.3), **shape}


def test_a_job_of_another_tolerance_joins_the_past_that_it_shares(here: World) -> None:
    tight, loose = two_tolerances(96)
    night(here, 1, tight)
    alone = stored(here, tight)
    assert alone is not None
    night(here, 2, loose)
    assert stored(here, tight) is None  # the page computes it, until a job of the test is over
    assert stored(here, loose) is not None
    both = trends_of(here, tight)
    assert [len(trend["points"]) for trend in (alone, both)] == [1, 2]
    # its rates are its own
    assert [point["failures"]["runs"] for point in both["points"]] == [8, 0]


def test_seeds_that_give_the_same_bits_at_two_tolerances_are_in_the_shared_past_once(
    here: World,
) -> None:
    tight, loose = two_tolerances(160)
    for test, seeds in ((tight, range(8)), (loose, range(8)), (loose, range(8, 12))):
        night(here, 1, test, seeds=seeds, assess=False)
    (point,) = trends_of(here, tight)["points"]
    assert (point["numbers"]["dx"]["seeds"], point["failures"]["runs"], point["jobs"]) == (12, 8, 3)
    (point,) = trends_of(here, tight, metric="tolerance_ratio")["points"]
    assert point["numbers"]["dx"]["seeds"] == 8


@pytest.mark.parametrize("named", [True, False])
def test_builds_are_compared_by_the_faults_of_their_unexplained_seeds_else_by_the_places(
    here: World, named: bool
) -> None:
    test = spec_of(0.52 if named else 0.53)
    for number, wrong in enumerate((5, 8)):
        rows = [row(seed, wrong=seed < wrong, bits=str(number)) for seed in range(8)]
        here.job(rows, test=test, build=f"n{number}", sequence=number, diagnosed=named)
    with engines.reading(here.engine) as session:
        before, after = build_series.records(session, jobs_of(session, variant(test)))
    assert [len(record.seeds) for record in (before, after)] == [8, 8]
    fault = Fault("twice:s1", 1.0, "s1 is subtracted twice") if named else None
    seeds = [before.seeds[seed] for seed in range(8)]
    assert [seed.faults.get("dx") for seed in seeds] == [fault] * 5 + [None] * 3
    assert [seed.places for seed in seeds] == [{"dx": PLACES}] * 5 + [{}] * 3
    (step,) = trends_of(here, test)["steps"]
    by, text = ("faults", "s1 is subtracted twice") if named else ("places", PLACES)
    assert pick(step, "change", "by", "same") == ("still_wrong", by, [f"dx: {text}"])
    assert [pick(rate, "failures", "runs") for rate in step["unexplained"]] == [(5, 8), (8, 8)]


def test_builds_are_compared_with_those_that_the_same_judge_judged(here: World) -> None:
    """Another judge, or another reference, is no change of a kernel."""
    judges = ("2:a", None, "3:a", "3:b", "3:b")
    test = {**spec_of(0.54), "shape": [1, 1, 96, 64]}  # no other test's trend
    for number, judge in enumerate(judges):
        night(here, number, test, seeds=range(4), assess=False, wrong=number > 2, judge=judge)
    with engines.reading(here.engine) as session:
        jobs = jobs_of(session, variant(test))
        assert [job.judge for job in jobs] == list(reversed(judges))
        records = build_series.records(session, jobs)
        points = trends.read(session, variant(test)).points
    assert [record.build for record in records] == ["n1", "n3", "n4"]
    assert [point.name for point in points] == ["n1", "n3", "n4"]
