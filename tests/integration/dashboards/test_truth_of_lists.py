"""The overview and the list of tests never say more, or less, than the results do."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from sqlalchemy.orm import Session

import nightly_history
import stored_jobs
from api import Api, in_process
from gonogo_dashboards.tests import test_list
from gonogo_service.bisections.model import BisectionRow, ProbeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from stored_histories import world


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as running:
        yield running


def assess(url: str) -> None:
    """Assess what ran, as the background service does."""
    with world(url) as background:
        background.assess()


def variant_of(number: int) -> dict[str, Any]:
    """Return the nightly test with another epsilon: a test of its own."""
    return {**stored_jobs.NIGHTLY, "epsilon": 1e-5 * (1 + number)}


def _bisect(session: Session, probe: JobRow) -> None:
    """Make a job a run of a bisection."""
    bisection = BisectionRow(
        id=new_id(),
        state="running",
        signal="red",
        expect="always",
        several=False,
        owner="ada",
        test_key=probe.test_key,
        queue="q",
        builds=["b0", "b1"],
        request={},
        seed_start=0,
        max_runs=8,
        runs=1,
        version=1,
        tracks=[],
        findings=[],
        created_at=utcnow(),
    )
    session.add(bisection)
    session.flush()
    session.add(
        ProbeRow(bisection_id=bisection.id, number=1, place=1, seed=7, job_id=probe.id, ended=True)
    )


def test_a_red_test_outside_of_runs_is_a_need_and_nothing_is_all_clear(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=4)
        red = [stored_jobs.row(seed, wrong=True, within=False) for seed in range(4)]
        stored_jobs.report(session, job.id, red)
        stored_jobs.finish(session, job.id)
    overview = api.client.get("/overview.json").json()
    assert [(need["what"], need["count"]) for need in overview["needs"]] == [("red", 1)]
    assert not overview["all_clear"]
    (need,) = overview["needs"]
    listed = api.client.get(need["url"].replace("/tests", "/tests.json")).json()["items"]
    assert len(listed) == 1
    assert "All clear" not in api.client.get("/").text


def test_a_test_whose_seeds_crashed_is_a_need_and_is_listed(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=1)
        stored_jobs.report(session, job.id, [stored_jobs.unwell(0, "crash", "signal 11")])
        stored_jobs.finish(session, job.id)
    (need,) = api.client.get("/overview.json").json()["needs"]
    assert (need["what"], need["words"]) == ("lost", "1 test without a result")
    listed = api.client.get(need["url"].replace("/tests", "/tests.json")).json()["items"]
    assert [line["key"] for line in listed] == [job.test_key]


def test_all_clear_stands_over_green_tests_only(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3))
    assert api.client.get("/overview.json").json()["all_clear"]
    assert "All clear" in api.client.get("/").text


def test_newer_flags_that_are_gone_hide_no_older_one_that_is_there(api: Api) -> None:
    others = range(1, 5)
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3), test=variant_of(0), wrong=True)
        for place in others:
            nightly_history.night(session, "b1", 1, range(3), test=variant_of(place), wrong=True)
        for place in others:
            nightly_history.night(session, "b2", 2, range(3), test=variant_of(place))
    (kind,) = api.client.get("/overview.json").json()["flags"]
    assert (kind["count"], kind["gone"]) == (5, 4)
    assert [flag["gone"] for flag in kind["items"]] == [False, True, True, True]
    page = api.client.get("/").text
    assert "None on the newest build" not in page
    assert "Not found on a newer build: 4" in page


def test_the_last_verdict_is_that_of_the_newest_build_and_not_of_the_newest_job(
    api: Api, migrated_sqlite_url: str
) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3), red=range(3), wrong=True)
        newest = nightly_history.night(session, "b2", 2, range(3))
        nightly_history.night(session, "b1", 1, range(10, 13), red=range(10, 13), wrong=True)
    assess(migrated_sqlite_url)
    (line,) = api.client.get("/tests.json").json()["items"]
    assert (line["verdict"], line["verdict_build"]) == ("pass", "b2")
    assert line["verdict_job"] == newest.id
    assert "newest job:" not in api.client.get("/tests").text, "it is finished: nothing to say"
    assert api.client.get("/tests.json?standing=red").json()["items"] == []
    with api.context.session() as session:
        stored_jobs.submit(session)
    assert "newest job: queued" in api.client.get("/tests").text


def test_the_runs_of_a_bisection_are_no_last_verdict(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3))
        probe = nightly_history.night(session, "b1", 1, [7], wrong=True, red=[7])
        _bisect(session, probe)
    (line,) = api.client.get("/tests.json").json()["items"]
    assert line["verdict"] == "pass"
    assert api.client.get("/tests.json?standing=red").json()["items"] == []


def test_a_test_that_only_a_bisection_ran_has_no_verdict_and_its_job_s_state_is_none(
    api: Api,
) -> None:
    with api.context.session() as session:
        _bisect(session, nightly_history.night(session, "b1", 1, [7]))
    page = api.client.get("/tests").text
    assert "No verdict" in page
    assert "Finished" not in page


def test_a_job_of_nan_says_why_its_chart_is_empty_and_shows_the_finite_errors(
    api: Api, migrated_sqlite_url: str
) -> None:
    rows = [stored_jobs.row(seed, wrong=True, within=False) for seed in range(8)]
    for row in rows:
        row["outputs"]["dx"]["nonfinite"] = 1024
    with api.context.session() as session:
        job = stored_jobs.submit(session)
        stored_jobs.report(session, job.id, rows)
        stored_jobs.finish(session, job.id)
    assess(migrated_sqlite_url)
    page = api.client.get(f"/jobs/{job.id}").text
    assert "No seed has numbers" not in page
    assert "dx: 8 seeds, none with a finite error to draw." in page
    test_page = api.client.get(f"/tests/{job.test_key}").text
    assert "8 of 8 (100%, 73.8% to 100%) seeds failed" in test_page


def test_a_test_that_only_crashed_says_that_nothing_was_judged(
    api: Api, migrated_sqlite_url: str
) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=2)
        lost = [stored_jobs.unwell(seed, "crash", "signal 11") for seed in range(2)]
        stored_jobs.report(session, job.id, lost)
        stored_jobs.finish(session, job.id)
    assess(migrated_sqlite_url)
    page = api.client.get(f"/tests/{job.test_key}").text
    assert "No run was judged; 2 of 2 (100%, 33.3% to 100%) were lost to hangs" in page
    assert "UNKNOWN" not in page


def test_the_row_shows_the_variant_that_its_filter_and_its_place_mean(
    api: Api, migrated_sqlite_url: str
) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3), board="n300", wrong=True)
        nightly_history.night(session, "b1", 1, range(3), board="n150")
        nightly_history.night(session, "b1", 1, range(3), test=variant_of(1))
    assess(migrated_sqlite_url)
    lines = api.client.get("/tests.json").json()["items"]
    assert [line["verdict"] for line in lines] == ["pass_by_tolerance", "pass"], "hollow first"
    assert "n300" in lines[0]["where"]


def shown(api: Api) -> dict[str, int]:
    """Return the numbers of the overview; the filters and their lists must have the same."""
    overview = api.client.get("/overview.json").json()
    values = {line["name"]: line["value"] for line in overview["numbers"][:3]}
    for line in overview["numbers"][:3]:
        listed = api.client.get(line["url"].replace("/tests", "/tests.json")).json()["items"]
        assert len(listed) == line["value"], line["name"]
    chips = api.client.get("/tests.json").json()["standings"]
    assert {chip["value"]: chip["count"] for chip in chips if chip["value"] in values} == values
    return values


def test_a_test_that_was_flaky_on_an_earlier_build_is_flaky_over_that_time(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(24), wrong=True, red=range(12))
        nightly_history.night(session, "b2", 2, range(24))
    assert shown(api) == {"hollow": 0, "red": 0, "flaky": 0}, "its newest build is right"
    assert len(api.client.get("/tests.json?standing=flaky&range=30d").json()["items"]) == 1


STORY: tuple[tuple[bool, range], ...] = (
    (True, range(0)),  # hollow
    (True, range(2)),  # wrong, hollow and flaky
    (True, range(3)),  # wrong
    (False, range(1)),  # a false alarm, flaky
    (False, range(3)),  # a false alarm
    (False, range(0)),
)


def test_green_jobs_of_other_tests_make_nothing_all_clear(
    api: Api, migrated_sqlite_url: str
) -> None:
    noon = utcnow().replace(hour=12)
    ids._last = 0  # the ids of what follows are of the past
    with time_machine.travel(noon - timedelta(days=1)), api.context.session() as session:
        for place, (wrong, red) in enumerate(STORY):
            test = variant_of(place)
            nightly_history.night(session, "b1", 1, range(3), test=test, wrong=wrong, red=red)
    with time_machine.travel(noon):
        assess(migrated_sqlite_url)
        for flag in api.client.get("/flags.json").json()["items"]:
            change = {"state": "acknowledged", "owner": "ada", "reason": "known"}
            path = f"/api/v1/flags/{flag['id']}"
            assert api.client.patch(path, json=change).status_code == 200
        for place in range(4):
            with api.context.session() as session:
                stored_jobs.finished(session, wrong=False, test=variant_of(10 + place))
        assert shown(api) == {"hollow": 2, "red": 4, "flaky": 2}
        overview = api.client.get("/overview.json").json()
        page = api.client.get("/").text
        badge = api.client.get("/badges/branches/main.svg").text
    assert not overview["all_clear"]
    assert "All clear" not in page
    assert "2 wrong, 2 false alarms; 0 of them ran today" in page
    assert "2 hollow passes and 4 red of 6 tests" in overview["glance"]["summary"]
    assert "main: 4 red, 2 hollow of 6" in badge


def test_a_test_stands_by_its_newest_build_for_a_month(api: Api) -> None:
    now = utcnow().replace(hour=12)
    ids._last = 0
    for back, wrong in ((20, False), (10, True)):
        with time_machine.travel(now - timedelta(days=back)), api.context.session() as session:
            nightly_history.night(session, f"b{30 - back}", 30 - back, range(3), wrong=wrong)
    for later, value, change in (
        (0, 1, "the same as a week ago"),
        (-5, 1, "1 more than a week ago"),
        (21, 0, "none had run a week ago"),
    ):
        with time_machine.travel(now + timedelta(days=later)):
            line = api.client.get("/overview.json").json()["numbers"][0]
            assert (line["value"], line["change"]) == (value, change), later


def test_a_bisection_of_old_builds_makes_no_day_hollow(api: Api) -> None:
    now = utcnow().replace(hour=12)
    ids._last = 0
    with time_machine.travel(now - timedelta(days=2)), api.context.session() as session:
        job = nightly_history.night(session, "b2", 2, range(3))
    with time_machine.travel(now):
        with api.context.session() as session:
            _bisect(session, nightly_history.night(session, "b1", 1, [7], wrong=True))
        assert shown(api) == {"hollow": 0, "red": 0, "flaky": 0}
        bars = api.client.get("/overview.json").json()["numbers"][0]["bars"]
        assert bars[-1]["words"].endswith(": 0 of 1 test")
        trend = api.get(f"/tests/{job.test_key}/changes?over=days&branch=main")
    assert [point["jobs"] for point in trend["points"]] == [1], "today is no point of the chart"


@pytest.mark.parametrize(("red", "verdict"), [((), "pass_by_tolerance"), ((0,), "fail")])
def test_the_csv_of_tests_says_hollow_wherever_a_seed_is(
    api: Api, red: tuple[int, ...], verdict: str
) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3), wrong=True, red=red)
    (line,) = csv.DictReader(io.StringIO(api.client.get("/tests.csv").text))
    assert (line["verdict"], line["hollow"].lower()) == (verdict, "true")
    assert ("and hollow" in api.client.get("/tests").text) == bool(red)


def test_the_strip_shows_the_builds_of_the_range_and_the_page_says_so(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(3))
    page = api.client.get("/tests?range=7d").text
    assert "The tests that ran in the last 7 days, with their builds of that time." in page
    assert "The tests that ran in the last" not in api.client.get("/tests").text
    with api.context.reading() as session:
        later = utcnow() + timedelta(days=8)
        assert test_list.listed(session, {"range": "7d"}, None, 50, later).items == ()
        (line,) = test_list.listed(session, {"range": "30d"}, None, 50, later).items
        assert len(line.recent.cells) == 1


def test_tests_with_one_shape_have_labels_of_their_own_in_every_list(api: Api) -> None:
    with api.context.session() as session:
        for place in range(2):
            test = variant_of(place)
            nightly_history.night(session, "b1", 1, range(3), test=test, wrong=True)
            nightly_history.night(session, "b2", 2, range(3), test=test, wrong=True)
    alike = "layernorm_bw 3×273×1×8462"
    expected = {f"epsilon 1e-05 · {alike}", f"epsilon 2e-05 · {alike}"}
    overview = api.client.get("/overview.json").json()
    assert {flag["label"] for kind in overview["flags"] for flag in kind["items"]} == expected
    assert {row["label"] for row in overview["glance"]["rows"]} == expected
    assert {row["label"] for row in api.client.get("/matrix.json").json()["rows"]} == expected
    hits = api.client.get("/search.json?q=layernorm").json()["items"]
    assert {hit["label"] for hit in hits if hit["kind"] == "test"} == expected
    compared = api.client.get("/compare.json?base=b1&head=b2").json()["tests"]
    named = {line["name"] for line in compared}
    assert {name.split(" · ")[0] for name in named} == {"epsilon 1e-05", "epsilon 2e-05"}
    page = api.client.get("/").text
    for label in expected:
        assert page.count(label) >= 2, "in the flags and in the grid"


@pytest.mark.parametrize("others", ["", "&range=7d", "&search=wormhole", "&kernel=nothing"])
def test_each_filter_says_how_many_tests_it_leaves(
    api: Api, migrated_sqlite_url: str, others: str
) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(24), wrong=True, red=range(12))
        nightly_history.night(session, "b2", 2, range(24))
        for place, red in enumerate((range(0), range(24), range(12)), start=1):
            for board in ("n150", "n300"):
                nightly_history.night(
                    session,
                    "b2",
                    2,
                    range(24),
                    test=variant_of(place),
                    wrong=True,
                    red=red,
                    board=board,
                )
        nightly_history.night(session, "b2", 2, range(3), test=variant_of(9))
    assess(migrated_sqlite_url)
    chips = api.client.get(f"/tests.json?{others}").json()["standings"]
    for chip in chips:
        listed = api.client.get(f"/tests.json?standing={chip['value']}{others}").json()["items"]
        assert chip["count"] == len(listed), chip["value"]
    if "nothing" not in others and "search" not in others:
        counts = {chip["value"]: chip["count"] for chip in chips}
        assert counts["hollow"] >= 2
        assert counts["red"] >= 2
        assert counts["flagged"] >= 3
        assert f"Hollow {counts['hollow']}<" in api.client.get(f"/tests?{others}").text


def test_a_reopened_flag_says_when_it_opened_and_not_that_it_was_found_first_then(
    api: Api, migrated_sqlite_url: str
) -> None:
    for build in (1, 2):
        with api.context.session() as session:
            nightly_history.night(session, f"b{build}", build, range(3), wrong=True)
        assess(migrated_sqlite_url)
        (flag,) = api.client.get("/flags.json?kind=passes_by_tolerance").json()["items"]
        view = api.client.get(f"/flags/{flag['id']}.json").json()
        assert "; opened just now; " in view["meaning"][1]
        assert "first" not in view["meaning"][1]
        change = {"state": "resolved", "reason": "fixed"}
        assert api.client.patch(f"/api/v1/flags/{flag['id']}", json=change).status_code == 200
    assert view["flag"]["state"] == "reopened"
