"""Stored trends equal computed ones, and are never used once the jobs have changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import func, select, update

import stored_jobs
from api import Api, in_process
from gonogo.flakiness.masking import Fault
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import decode, encode
from gonogo_service.tests import build_series, trends
from gonogo_service.tests.build_series import Over
from gonogo_service.tests.variants import jobs_of
from stored_histories import World, row, spec_of, variant, world
from stored_jobs import PLACES


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
    test: dict[str, Any] = stored_jobs.NIGHTLY,
    *,
    assess: bool = True,
    wrong: bool = False,
) -> None:
    rows = [row(seed, wrong=wrong, bits=str(number)) for seed in range(8)]
    here.job(rows, test=test, build=f"n{number}", sequence=number, assess=assess)


def trends_of(here: World, test: dict[str, Any], **chosen: Any) -> dict[str, Any]:
    with engines.reading(here.engine) as session:
        trend = trends.read(session, variant(test), **chosen)
    plain: dict[str, Any] = decode(encode(trend))
    return plain


def stored(here: World, test: dict[str, Any], **chosen: Any) -> dict[str, Any] | None:
    """Return the trends without reading a seed; None where they would have to be computed."""

    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise LookupError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trends, "_computed", refuse)
        try:
            return trends_of(here, test, **chosen)
        except LookupError:
            return None


def computed(here: World, test: dict[str, Any], over: Over) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trends, "_stored", lambda *_arguments: None)
        return trends_of(here, test, over=over)


def test_what_is_stored_is_what_would_be_computed_and_is_left_when_a_job_has_come_since(
    here: World, url: str
) -> None:
    test = stored_jobs.NIGHTLY
    for number in range(5):
        night(here, number, wrong=number >= 3)
    for over in trends.OVERS:
        stored_trends = stored(here, test, over=over)
        assert stored_trends is not None
        assert stored_trends == computed(here, test, over)
        assert [step["change"] for step in stored_trends["steps"]] == (
            ["right", "right", "broken", "still_wrong"] if over == "builds" else []
        )
    assert [
        (change["at"], change["between"])
        for change in trends_of(here, test)["numbers"]["dx"]["changes"]
    ] == [("n3", ["n3", "n3"])]
    other = trends_of(here, test, metric="max_abs")
    assert (other["metric"], other["steps"]) == ("max_abs", trends_of(here, test)["steps"])
    assert other["numbers"] != trends_of(here, test)["numbers"]

    night(here, 5, assess=False)
    assert stored(here, test) is None
    assert [step["change"] for step in trends_of(here, test)["steps"]][-2:] == [
        "still_wrong",
        "fixed",
    ]
    here.assess()
    stored_trends = stored(here, test)
    assert stored_trends is not None
    assert [point["name"] for point in stored_trends["points"]] == [
        f"n{number}" for number in range(6)
    ]

    with in_process(url) as api:  # the API and the page's twin say the same
        answer, page = _both(api, variant(test).test_key)
    assert {name: answer[name] for name in stored_trends} == stored_trends
    assert [(step["before"], step["after"]) for step in reversed(page["steps"])] == [
        (step["before"], step["after"]) for step in stored_trends["steps"]
    ]
    assert [change["at"] for change in answer["numbers"]["dx"]["changes"]] == ["n3", "n5"]
    assert len([change for change in page["changes"] if change["words"].startswith("dx: ")]) == 2

    with engines.session(here.engine) as session:  # seeds that come after a job was over
        newest = (
            select(func.max(JobRow.build_sequence))
            .where(JobRow.test_key == variant(test).test_key)
            .scalar_subquery()
        )
        session.execute(
            update(JobRow).where(JobRow.build_sequence == newest).values(done=JobRow.done + 1)
        )
    assert stored(here, test) is None


def _both(api: Api, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return api.get(f"/tests/{key}/changes"), api.client.get(f"/tests/{key}.json").json()


def test_a_job_of_another_tolerance_joins_the_past_that_it_shares(here: World) -> None:
    shape = {"shape": [1, 1, 32, 96]}
    tight, loose = {**spec_of(0.2), **shape}, {**spec_of(0.3), **shape}
    night(here, 1, tight)
    alone = stored(here, tight)
    night(here, 2, loose)
    assert stored(here, tight) is None  # the page computes it, until a job of the test is over
    assert stored(here, loose) is not None
    both = trends_of(here, tight)
    assert alone is not None
    assert [len(trend["points"]) for trend in (alone, both)] == [1, 2]
    assert [point["failures"]["runs"] for point in both["points"]] == [
        8,
        0,
    ]  # its rates are its own


def test_seeds_that_give_the_same_bits_at_two_tolerances_are_in_the_shared_past_once(
    here: World,
) -> None:
    shape = {"shape": [1, 1, 32, 160]}
    tight, loose = {**spec_of(0.2), **shape}, {**spec_of(0.3), **shape}
    for test in (tight, loose):
        night(here, 1, test, assess=False)
    here.job([row(seed) for seed in range(8, 12)], test=loose, build="n1", sequence=1, assess=False)
    (point,) = trends_of(here, tight)["points"]
    assert (point["numbers"]["dx"]["seeds"], point["failures"]["runs"], point["jobs"]) == (12, 8, 3)
    assert (
        trends_of(here, tight, metric="tolerance_ratio")["points"][0]["numbers"]["dx"]["seeds"] == 8
    )


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
    faults = [before.seeds[seed].faults.get("dx") for seed in range(8)]
    fault = Fault("twice:s1", 1.0, "s1 is subtracted twice") if named else None
    assert faults == [fault] * 5 + [None] * 3
    assert [seed.places for seed in before.seeds.values()] == [{"dx": PLACES}] * 5 + [{}] * 3
    (step,) = trends_of(here, test)["steps"]
    by, text = ("faults", "s1 is subtracted twice") if named else ("places", PLACES)
    assert (step["change"], step["by"]) == ("still_wrong", by)
    assert step["same"] == [f"dx: {text}"]
    assert [(rate["failures"], rate["runs"]) for rate in step["unexplained"]] == [(5, 8), (8, 8)]


def test_builds_are_compared_with_those_that_the_same_judge_judged(here: World) -> None:
    """Another judge, or another reference, is no change of a kernel."""
    judges = ("2:a", None, "3:a", "3:b", "3:b")
    test = {**spec_of(0.54), "shape": [1, 1, 96, 64]}  # no other test's trend
    for number, judge in enumerate(judges):
        rows = [row(seed, wrong=number > 2, bits=str(number)) for seed in range(4)]
        rows = [{**one, "judge": judge} for one in rows]
        here.job(rows, test=test, build=f"n{number}", sequence=number, assess=False)
    with engines.reading(here.engine) as session:
        jobs = jobs_of(session, variant(test))
        assert [job.judge for job in jobs] == list(reversed(judges))
        records = build_series.records(session, jobs)
        points = trends.read(session, variant(test)).points
    assert [record.build for record in records] == ["n1", "n3", "n4"]
    assert [point.name for point in points] == ["n1", "n3", "n4"]
