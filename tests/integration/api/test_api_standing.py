"""A test's grade, rates, attribution, change points and comparisons of builds, over HTTP and on the
page."""

from __future__ import annotations

import nightly_history
import stored_jobs
from api import Api, refusal
from database_params import BOTH
from emulator_worker import core_of, work_off
from records import pick

GROUPED = {"name": "grouped", "before": [{"kernel": "layernorm_fw", "shape": [32, 64]}]}
LOOSER = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.7}}


@BOTH
def test_a_masked_fix_is_told_from_a_fix(api: Api) -> None:
    """The bug report's table: two red builds, a green one that is still wrong, then a right one."""
    with api.context.session() as session:
        key = nightly_history.masked(session)
    trend = api.get(f"/tests/{key}/changes")
    steps = [pick(step, "before", "after", "change") for step in trend["steps"]]
    assert steps == [
        ("9ca166977b", "b747edd158", "still_wrong"),
        ("b747edd158", "b0304ff7a5", "fix_masked"),
        ("b0304ff7a5", "fixed-4c1e", "fixed"),
    ]
    masked = api.get(f"/tests/{key}/comparison?base=b747edd158&head=b0304ff7a5")
    assert pick(masked, "change", "by", "turned_green") == ("fix_masked", "faults", True)
    assert masked["same"] == ["dx: s1 is subtracted twice"]
    assert "masked, not fixed" in masked["sentence"]
    assert [rate["failures"] for rate in (*masked["red"], masked["unexplained"][1])] == [5, 0, 5]
    # the newest build against the one before
    assert api.get(f"/tests/{key}/comparison")["change"] == "fixed"
    unknown = api.get(f"/tests/{key}/comparison?base=never-built")
    assert (unknown["change"], unknown["after"]) == ("unknown", "fixed-4c1e")

    # the rate changed where it turned green, the numbers only where it was fixed
    (rate,) = trend["rates"]["changes"]
    assert (rate["at"], rate["between"]) == ("b0304ff7a5", ["b0304ff7a5", "b0304ff7a5"])
    (number,) = trend["numbers"]["dx"]["changes"]
    assert (number["at"], number["level"]) == ("fixed-4c1e", 0.95)
    assert "from fixed-4c1e on" in number["words"]
    assert trend["numbers"]["dgamma"]["changes"] == []

    (variant,) = api.get(f"/tests/{key}")["variants"]
    builds = {build["build"]: build for build in variant["builds"]}
    assert list(builds) == ["fixed-4c1e", "b0304ff7a5", "b747edd158", "9ca166977b"]
    hollow = builds["b0304ff7a5"]
    assert hollow["failures"]["failures"] == 0
    assert pick(hollow["hollow"], "failures", "runs") == (5, 5)
    assert 0 < hollow["hollow"]["low"] < 1 == hollow["hollow"]["high"]
    page = api.client.get(f"/tests/{key}.json?build=b0304ff7a5").json()
    assert page["badges"] == ["unknown", "unmeasured", "hollow pass"]
    assert page["steps"] == trend["steps"][::-1]
    shown = api.client.get(f"/tests/{key}").text
    assert shown.index("Fixed</span>") < shown.index("Masked, not fixed</span>")
    assert "1 step without a change" in shown
    tests = api.client.get("/tests.json").json()["items"]
    assert [(test["key"], test["flags"], test["verdict"]) for test in tests] == [(key, 1, "pass")]


def test_variants_are_apart_and_the_one_that_ran_last_comes_first(api: Api) -> None:
    with api.context.session() as session:
        key = nightly_history.night(session, "v1", 1, range(25)).test_key
        nightly_history.night(session, "v1", 1, range(4), wrong=True, red=range(4), board="n300")
    answer = api.get(f"/tests/{key}")
    grades = {variant["board"]: variant["grade"]["stability"] for variant in answer["variants"]}
    assert list(grades.items()) == [("n300", "broken"), ("n150", "robust")]
    assert answer["variants"][1]["grade"]["tail"]["seeds"] == 25
    assert api.get(f"/tests/{key}?board=n150")["variants"] == answer["variants"][1:]
    assert api.get(f"/tests/{key}/attribution")["cause"] == "broken"
    steady = api.get(f"/tests/{key}/attribution?branch=main&arch=wormhole&board=n150&samples=3")
    assert (steady["cause"], steady["build"], len(steady["samples"])) == ("stable", "v1", 3)
    assert steady["variants"] == [
        {"branch": "main", "arch": "wormhole", "board": board} for board in ("n300", "n150")
    ]
    assert api.get(f"/tests/{key}/attribution?board=n150&build=never")["cause"] == "unknown"
    wrong = api.client.get(f"/api/v1/tests/{key}/attribution?board=p150")
    assert (*refusal(wrong), wrong.json()["value"]) == (404, "board", "p150")
    assert "main, wormhole, n300" in wrong.json()["limit"]


def test_numbers_keep_their_past_when_a_test_takes_another_tolerance(api: Api) -> None:
    with api.context.session() as session:
        for sequence in range(4):
            nightly_history.night(session, f"v{sequence}", sequence, range(4))
        later = nightly_history.night(session, "v4", 4, range(4), test=LOOSER).test_key
    trend = api.get(f"/tests/{later}/changes")
    assert [point["name"] for point in trend["points"]] == ["v0", "v1", "v2", "v3", "v4"]
    # a rate belongs to one test, not to its workload
    assert [point["failures"]["runs"] for point in trend["points"]] == [0, 0, 0, 0, 4]
    tolerance_trend = api.get(f"/tests/{later}/changes?metric=tolerance_ratio")
    assert [point["name"] for point in tolerance_trend["points"]] == ["v4"]
    by_day = api.get(f"/tests/{later}/changes?over=days")
    assert (len(by_day["points"]), by_day["steps"]) == (1, [])
    assert by_day["numbers"]["dx"]["words"].startswith("not enough points: 1 of")


def test_the_stored_judgement_counts_until_a_newer_job_is_over(api: Api) -> None:
    core = core_of(api.context)
    with api.context.session() as session:
        key = nightly_history.night(session, "v1", 1, range(3)).test_key
    assert api.get(f"/tests/{key}/attribution")["assessed"] == {"source": "computed", "at": None}
    work_off(core)
    stored = api.get(f"/tests/{key}/attribution")
    assert stored["assessed"]["source"] == "stored"
    assert api.client.get("/tests.json").json()["items"][0]["badges"][0] == "unknown"
    with api.context.session() as session:
        how = {"wrong": True, "red": range(3), "bits": "after", "context": GROUPED}
        nightly_history.night(session, "v1", 1, range(3), **how)
    fresh = api.get(f"/tests/{key}/attribution")
    assert fresh["cause"] == "context_dependent"
    assert (fresh["assessed"]["source"], fresh["failures"]["failures"]) == ("computed", 3)
    work_off(core)
    again = api.get(f"/tests/{key}/attribution")
    assert again["assessed"]["source"] == "stored"
    assert {**again, "assessed": None} == {**fresh, "assessed": None}
    core.close()


def test_a_test_without_a_finished_job_has_defined_answers(api: Api) -> None:
    key = api.get(f"/jobs/{api.submit()}")["test_key"]
    (variant,) = api.get(f"/tests/{key}")["variants"]
    assert pick(variant, "build", "builds") == (None, [])
    assert variant["grade"]["stability"] == "unknown"
    attribution = api.get(f"/tests/{key}/attribution")
    assert pick(attribution, "cause", "words", "samples") == ("unknown", "no runs", [])
    assert api.get(f"/tests/{key}/changes")["rates"]["words"] == "not enough points: 0 of 2"
    assert api.get(f"/tests/{key}/comparison")["change"] == "unknown"
    assert "0 of 0 seeds of 0 jobs" in api.client.get(f"/tests/{key}").text
    assert api.client.get("/tests").status_code == api.client.get("/flags").status_code == 200
