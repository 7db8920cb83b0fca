"""The overview and the list of tests never say more, or less, than the results do."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from sqlalchemy.orm import Session

import compared_builds
import nightly_history
import stored_jobs
from api import Api
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_dashboards.tests import test_list
from gonogo_service.bisections.model import BisectionRow, ProbeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from stored_histories import world


def assess(api: Api) -> None:
    """Assess what ran, as the background service does."""
    with world(str(api.settings.database_url)) as background:
        background.assess()


def variant_of(number: int) -> dict[str, Any]:
    """The nightly test with another epsilon: a test of its own."""
    return {**stored_jobs.NIGHTLY, "epsilon": 1e-5 * (1 + number)}


def night(api: Api, build: int, seeds: range, **options: Any) -> JobRow:
    """A night of the build b1, b2, ..."""
    with api.context.session() as session:
        return nightly_history.night(session, f"b{build}", build, seeds, **options)


def ended(api: Api, rows: list[dict[str, Any]]) -> JobRow:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=len(rows))
        stored_jobs.report(session, job.id, rows)
        stored_jobs.finish(session, job.id)
    assess(api)
    return job


def items(api: Api, address: str) -> list[dict[str, Any]]:
    path, mark, query = address.partition("?")
    listed: list[dict[str, Any]] = api.client.get(f"{path}.json{mark}{query}").json()["items"]
    return listed


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


RED = [stored_jobs.row(seed, wrong=True, within=False) for seed in range(4)]
CRASHED = [stored_jobs.unwell(seed, "crash", "signal 11") for seed in range(2)]
NAN = [stored_jobs.row(seed, wrong=True, within=False) for seed in range(8)]
for _row in NAN:
    _row["outputs"]["dx"]["nonfinite"] = 1024


@pytest.mark.parametrize(
    ("rows", "what", "of_job", "of_test"),
    [
        (RED, "red", "dx: 4 seeds", "4 of 4 (100%"),
        (NAN, "red", "dx: 8 seeds, none with a finite error to draw.", "8 of 8 (100%"),
        (CRASHED, "lost", "none with an output", "No run was judged; 2 of 2 (100%, 33.3% to 100%)"),
    ],
    ids=["red", "nan", "crashed"],
)
def test_a_red_or_lost_test_is_a_need_with_its_list_and_says_why(
    api: Api, rows: list[dict[str, Any]], what: str, of_job: str, of_test: str
) -> None:
    job = ended(api, rows)
    overview = api.client.get("/overview.json").json()
    (need,) = (need for need in overview["needs"] if need["what"] == what)
    assert [line["key"] for line in items(api, need["url"])] == [job.test_key]
    assert not overview["all_clear"]
    assert "All clear" not in api.client.get("/").text
    assert of_job in api.client.get(f"/jobs/{job.id}").text
    assert of_test in api.client.get(f"/tests/{job.test_key}").text


def test_a_green_build_with_lost_seeds_says_so_in_lists_and_in_the_matrix(api: Api) -> None:
    rows = [stored_jobs.row(seed, wrong=False) for seed in range(2)]
    ended(api, [*rows, stored_jobs.unwell(2, "crash", "signal 11")])
    listed, matrix = (api.client.get(path).text for path in ("/tests", "/matrix"))
    assert "The last 1 build: 1 red, 1 with hangs, crashes or errors</span>" in listed
    assert 'class="cell v-pass partly"' in matrix


def test_all_clear_stands_over_green_tests_only(api: Api) -> None:
    night(api, 1, range(3))
    assert api.client.get("/overview.json").json()["all_clear"]
    assert "All clear" in api.client.get("/").text


def test_newer_flags_that_are_gone_hide_no_older_one_that_is_there(api: Api) -> None:
    for place in range(5):
        night(api, 1, range(3), test=variant_of(place), wrong=True)
    for place in range(1, 5):
        night(api, 2, range(3), test=variant_of(place))
    (kind,) = api.client.get("/overview.json").json()["flags"]
    assert (kind["count"], kind["gone"]) == (5, 4)
    assert [flag["gone"] for flag in kind["items"]] == [False, True, True, True]
    assert "Not found on a newer build: 4" in api.client.get("/").text


def test_the_last_verdict_is_that_of_the_newest_build_and_no_bisections(api: Api) -> None:
    probe = night(api, 1, range(7, 8), test=variant_of(1))
    with api.context.session() as session:
        _bisect(session, probe)
    page = api.client.get("/tests").text
    assert "No verdict" in page
    assert "Finished" not in page
    assert api.client.get("/compare.json").json()["choices"] == [], "b1 can't be a head"
    night(api, 1, range(3), red=range(3), wrong=True)
    newest = night(api, 2, range(3))
    night(api, 1, range(10, 13), red=range(10, 13), wrong=True)
    with api.context.session() as session:
        _bisect(session, nightly_history.night(session, "b2", 2, [7], wrong=True, red=[7]))
    assess(api)
    (line,) = (one for one in items(api, "/tests") if one["key"] == newest.test_key)
    assert (line["verdict"], line["verdict_build"]) == ("pass", "b2")
    assert line["verdict_job"] == newest.id
    assert "newest job:" not in api.client.get("/tests").text, "it is finished: nothing to say"
    assert items(api, "/tests?standing=red") == []
    assert "Every run passed. 0 of 3 (" in api.client.get(line["url"]).text
    (compared,) = api.client.get("/compare.json?base=b1&head=b2").json()["tests"]
    assert compared["head"] == "3 pass"
    with api.context.session() as session:
        stored_jobs.submit(session)
    assert "newest job: queued" in api.client.get("/tests").text


def test_the_row_shows_the_variant_that_its_filter_and_its_place_mean(api: Api) -> None:
    night(api, 1, range(3), board="n300", wrong=True)
    night(api, 1, range(3), board="n150")
    night(api, 1, range(3), test=variant_of(1))
    assess(api)
    lines = items(api, "/tests")
    assert [line["verdict"] for line in lines] == ["pass_by_tolerance", "pass"], "hollow first"
    assert "n300" in lines[0]["where"]
    path, _, place = lines[0]["url"].partition("?")
    assert api.client.get(f"{path}.json?{place}").json()["variant"]["board"] == "n300"


def test_a_number_says_what_of_it_the_grid_of_main_does_not_show(api: Api) -> None:
    night(api, 1, range(3), wrong=True, red=range(3))
    night(api, 1, range(3), test=variant_of(1))
    job = night(api, 2, range(3), test=variant_of(1), branch="fast-ln", wrong=True, red=range(3))
    red = api.client.get("/overview.json").json()["numbers"][1]
    assert (red["name"], red["value"], red["parts"]) == ("red", 2, "2 wrong, 1 not on main")
    assert api.client.get(f"/tests/{job.test_key}.json").json()["variant"]["branch"] == "main"


def shown(api: Api) -> dict[str, int]:
    """The numbers of the overview; the filters and their lists must have the same."""
    numbers = api.client.get("/overview.json").json()["numbers"][:3]
    values = {line["name"]: line["value"] for line in numbers}
    for line in numbers:
        assert len(items(api, line["url"])) == line["value"], line["name"]
    chips = api.client.get("/tests.json").json()["standings"]
    assert {chip["value"]: chip["count"] for chip in chips if chip["value"] in values} == values
    return values


def test_the_worst_come_first_by_their_newest_results_in_lists_and_matrix(api: Api) -> None:
    for test, wrong in ((0, False), (1, True), (2, False)):
        night(api, 1, range(2), test=variant_of(test), wrong=wrong)
    assess(api)  # what is assessed now is over when the next build has run
    for test, wrong, red in ((1, False, ()), (0, False, range(2)), (2, True, ())):
        night(api, 2, range(2), test=variant_of(test), wrong=wrong, red=red)
    worst = ["hollow", "red", "right"]
    names = {f"epsilon {variant_of(test)['epsilon']:g}": worst[test - 2] for test in range(3)}
    for lines in (
        items(api, "/tests"),
        api.client.get("/matrix.json").json()["rows"],
        api.client.get("/overview.json").json()["glance"]["rows"],
    ):
        assert [names[line["details"]] for line in lines] == worst
    (row,) = api.client.get("/matrix.json?grade=hollow").json()["rows"]
    assert row["cells"][0]["hollow"]


def test_a_test_that_was_flaky_on_an_earlier_build_is_flaky_over_that_time(api: Api) -> None:
    night(api, 1, range(24), wrong=True, red=range(12))
    night(api, 2, range(24))
    assert shown(api) == {"hollow": 0, "red": 0, "flaky": 0}, "its newest build is right"
    assert len(items(api, "/tests?standing=flaky&range=30d")) == 1


STORY: tuple[tuple[bool, range], ...] = (
    (True, range(0)),  # hollow
    (True, range(2)),  # wrong, hollow and flaky
    (True, range(3)),  # wrong
    (False, range(1)),  # a false alarm, flaky
    (False, range(3)),  # a false alarm
    (False, range(0)),
)


def test_green_jobs_of_other_tests_make_nothing_all_clear(api: Api) -> None:
    noon = utcnow().replace(hour=12)
    ids._last = 0  # the ids of what follows are of the past
    with time_machine.travel(noon - timedelta(days=1)):
        for place, (wrong, red) in enumerate(STORY):
            night(api, 1, range(3), test=variant_of(place), wrong=wrong, red=red)
    with time_machine.travel(noon):
        assess(api)
        for flag in items(api, "/flags"):
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
    assert "2 wrong, 2 false alarms; 0 of them ran today" in page
    assert "2 hollow passes and 4 red of 6 tests" in overview["glance"]["summary"]
    assert "main: 4 red, 2 hollow of 6" in badge


def test_a_test_stands_by_its_newest_build_for_a_month(api: Api) -> None:
    now = utcnow().replace(hour=12)
    ids._last = 0
    for back, wrong in ((20, False), (10, True)):
        with time_machine.travel(now - timedelta(days=back)):
            night(api, 30 - back, range(3), wrong=wrong)
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
    with time_machine.travel(now - timedelta(days=2)):
        job = night(api, 2, range(3))
    with time_machine.travel(now):
        with api.context.session() as session:
            probe = nightly_history.submit(session, [7], build="b1", sequence=1)
            _bisect(session, probe)
            wrong = stored_jobs.row(7, wrong=True, within=False)
            stored_jobs.report(session, probe.id, [wrong])
            stored_jobs.finish(session, probe.id)
        assert shown(api) == {"hollow": 0, "red": 0, "flaky": 0}
        overview = api.client.get("/overview.json").json()
        assert overview["numbers"][0]["bars"][-1]["words"].endswith(": 0 of 1 test")
        assert overview["days"]["seeds"] == 3, "the chart of days"
        (line,) = items(api, "/tests")
        assert line["month"] == {"failed": 0, "runs": 3}
        trend = api.get(f"/tests/{job.test_key}/changes?over=days&branch=main")
    assert [point["jobs"] for point in trend["points"]] == [1], "today is no point of the chart"


@pytest.mark.parametrize(("red", "verdict"), [((), "pass_by_tolerance"), ((0,), "fail")])
def test_the_csv_of_tests_says_hollow_wherever_a_seed_is(
    api: Api, red: tuple[int, ...], verdict: str
) -> None:
    night(api, 1, range(3), wrong=True, red=red)
    (line,) = csv.DictReader(io.StringIO(api.client.get("/tests.csv").text))
    assert (line["verdict"], line["hollow"].lower()) == (verdict, "true")
    assert ("and hollow" in api.client.get("/tests").text) == bool(red)


def test_the_strip_shows_the_builds_of_the_range_and_the_page_says_so(api: Api) -> None:
    night(api, 1, range(3))
    page = api.client.get("/tests?range=7d").text
    assert "The tests that ran in the last 7 days, with their builds of that time." in page
    assert "The tests that ran in the last" not in api.client.get("/tests").text
    with api.context.reading() as session:
        later = utcnow() + timedelta(days=8)
        assert test_list.listed(session, {"range": "7d"}, None, 50, later).items == ()
        (line,) = test_list.listed(session, {"range": "30d"}, None, 50, later).items
        assert len(line.recent.cells) == 1


def test_tests_with_one_shape_have_labels_of_their_own_in_every_list(api: Api) -> None:
    for place in range(2):
        for build in (1, 2):
            night(api, build, range(3), test=variant_of(place), wrong=True)
    alike = "layernorm_bw 3×273×1×8462"
    expected = {f"epsilon 1e-05 · {alike}", f"epsilon 2e-05 · {alike}"}
    overview = api.client.get("/overview.json").json()
    assert {flag["label"] for kind in overview["flags"] for flag in kind["items"]} == expected
    assert {row["label"] for row in overview["glance"]["rows"]} == expected
    assert {row["label"] for row in api.client.get("/matrix.json").json()["rows"]} == expected
    hits = items(api, "/search?q=layernorm")
    assert {hit["label"] for hit in hits if hit["kind"] == "test"} == expected
    compared = api.client.get("/compare.json?base=b1&head=b2").json()["tests"]
    named = {line["name"].split(" · ")[0] for line in compared}
    assert named == {"epsilon 1e-05", "epsilon 2e-05"}


def test_each_filter_says_how_many_tests_it_leaves(api: Api) -> None:
    night(api, 1, range(24), wrong=True, red=range(12))
    night(api, 2, range(24))
    for place, red in enumerate((range(0), range(24), range(12)), start=1):
        for board in ("n150", "n300"):
            test = variant_of(place)
            night(api, 2, range(24), test=test, wrong=True, red=red, board=board)
    night(api, 2, range(3), test=variant_of(9))
    assess(api)
    for others in ("", "&range=7d", "&search=wormhole", "&kernel=nothing"):
        chips = api.client.get(f"/tests.json?{others}").json()["standings"]
        for chip in chips:
            listed = items(api, f"/tests?standing={chip['value']}{others}")
            assert chip["count"] == len(listed), (others, chip["value"])
        counts = {chip["value"]: chip["count"] for chip in chips}
        if others in ("", "&range=7d"):
            assert min(counts[name] for name in ("hollow", "red", "flagged")) >= 2
            assert f"Hollow {counts['hollow']}<" in api.client.get(f"/tests?{others}").text


def test_a_reopened_flag_says_when_it_opened_and_not_that_it_was_found_first_then(
    api: Api,
) -> None:
    for build in (1, 2):
        night(api, build, range(3), wrong=True)
        assess(api)
        (flag,) = items(api, "/flags?kind=passes_by_tolerance")
        view = api.client.get(f"/flags/{flag['id']}.json").json()
        assert "; opened just now; " in view["meaning"][1]
        assert "first" not in view["meaning"][1]
        change = {"state": "resolved", "reason": "fixed"}
        assert api.client.patch(f"/api/v1/flags/{flag['id']}", json=change).status_code == 200
    assert view["flag"]["state"] == "reopened"


def test_a_test_that_only_a_gauge_ran_is_blunt_in_the_list_as_in_the_flags(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session)
        compared_builds.flag(session, job, FlagKind.blunt_test)
    (line,) = items(api, "/tests?standing=blunt")
    assert line["key"] == job.test_key
    chips = api.client.get("/tests.json").json()["standings"]
    assert next(chip["count"] for chip in chips if chip["value"] == "blunt") == 1
