"""A test's grade, rates, attribution, change points and comparisons of builds, over HTTP.

They are computed from stored seeds; the page's JSON twin shows the same.
"""

from __future__ import annotations

import nightly_history
import stored_jobs
from api import Api, in_process
from emulator_worker import core_of, work_off

GROUPED = {"name": "grouped", "before": [{"kernel": "layernorm_fw", "shape": [32, 64]}]}
LOOSER = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.7}}


def test_a_masked_fix_is_told_from_a_fix(database_url: str) -> None:
    """The bug report's table: two red builds, a green one that is still wrong, then a right one."""
    with in_process(database_url) as api:
        with api.context.session() as session:
            key = nightly_history.masked(session)
        trend = api.get(f"/tests/{key}/changes")
        steps = [(step["before"], step["after"], step["change"]) for step in trend["steps"]]
        assert steps == [
            ("9ca166977b", "b747edd158", "still_wrong"),
            ("b747edd158", "b0304ff7a5", "fix_masked"),
            ("b0304ff7a5", "fixed-4c1e", "fixed"),
        ]
        masked = api.get(f"/tests/{key}/comparison?base=b747edd158&head=b0304ff7a5")
        assert (masked["change"], masked["by"], masked["turned_green"]) == (
            "fix_masked",
            "faults",
            True,
        )
        assert masked["same"] == ["dx: s1 is subtracted twice"]
        assert "masked, not fixed" in masked["sentence"]
        assert (
            masked["red"][0]["failures"],
            masked["red"][1]["failures"],
            masked["unexplained"][1]["failures"],
        ) == (5, 0, 5)
        assert (
            api.get(f"/tests/{key}/comparison")["change"] == "fixed"
        )  # the newest build against the one before
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
        assert (
            hollow["failures"]["failures"],
            hollow["hollow"]["failures"],
            hollow["hollow"]["runs"],
        ) == (0, 5, 5)
        assert 0 < hollow["hollow"]["low"] < 1 == hollow["hollow"]["high"]
        page = api.client.get(f"/tests/{key}.json?build=b0304ff7a5").json()
        assert page["badges"] == ["unknown", "unmeasured", "hollow pass"]
        assert page["steps"] == trend["steps"][::-1]
        shown = api.client.get(f"/tests/{key}").text
        assert shown.index("Fixed</span>") < shown.index("Masked, not fixed</span>")
        assert "1 step without a change" in shown
        tests = api.client.get("/tests.json").json()["items"]
        assert [(test["key"], test["flags"], test["verdict"]) for test in tests] == [
            (key, 1, "pass")
        ]


def test_variants_are_apart_and_the_one_that_ran_last_comes_first(api: Api) -> None:
    with api.context.session() as session:
        key = nightly_history.night(session, "v1", 1, range(25)).test_key
        nightly_history.night(session, "v1", 1, range(4), wrong=True, red=range(4), board="n300")
    answer = api.get(f"/tests/{key}")
    assert [
        (variant["board"], variant["grade"]["stability"]) for variant in answer["variants"]
    ] == [
        ("n300", "broken"),
        ("n150", "robust"),
    ]
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
    assert (wrong.status_code, wrong.json()["field"], wrong.json()["value"]) == (
        404,
        "board",
        "p150",
    )
    assert "main, wormhole, n300" in wrong.json()["limit"]


def test_numbers_keep_their_past_when_a_test_takes_another_tolerance(api: Api) -> None:
    with api.context.session() as session:
        for sequence in range(4):
            nightly_history.night(session, f"v{sequence}", sequence, range(4))
        later = nightly_history.night(session, "v4", 4, range(4), test=LOOSER).test_key
    trend = api.get(f"/tests/{later}/changes")
    assert [point["name"] for point in trend["points"]] == ["v0", "v1", "v2", "v3", "v4"]
    assert [point["failures"]["runs"] for point in trend["points"]] == [
        0,
        0,
        0,
        0,
        4,
    ]  # a rate belongs to one test, not to its workload
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
        nightly_history.night(
            session, "v1", 1, range(3), wrong=True, red=range(3), bits="after", context=GROUPED
        )
    fresh = api.get(f"/tests/{key}/attribution")
    assert (fresh["assessed"]["source"], fresh["cause"], fresh["failures"]["failures"]) == (
        "computed",
        "context_dependent",
        3,
    )
    work_off(core)
    again = api.get(f"/tests/{key}/attribution")
    assert again["assessed"]["source"] == "stored"
    assert {**again, "assessed": None} == {**fresh, "assessed": None}
    core.close()


def test_a_test_without_a_finished_job_has_defined_answers(api: Api) -> None:
    key = api.get(f"/jobs/{api.submit()}")["test_key"]
    (variant,) = api.get(f"/tests/{key}")["variants"]
    assert (variant["build"], variant["grade"]["stability"], variant["builds"]) == (
        None,
        "unknown",
        [],
    )
    attribution = api.get(f"/tests/{key}/attribution")
    assert (attribution["cause"], attribution["words"], attribution["samples"]) == (
        "unknown",
        "no runs",
        [],
    )
    assert api.get(f"/tests/{key}/changes")["rates"]["words"] == "not enough points: 0 of 2"
    assert api.get(f"/tests/{key}/comparison")["change"] == "unknown"
    assert "0 of 0 seeds of 0 jobs" in api.client.get(f"/tests/{key}").text
    assert api.client.get("/tests").status_code == api.client.get("/flags").status_code == 200


REFUSED: dict[str, tuple[int, str | None]] = {
    "/api/v1/tests/v1-nothing/attribution": (404, "test"),
    "/api/v1/tests/v1-nothing/changes": (404, "test"),
    "/api/v1/tests/v1-nothing/comparison": (404, "test"),
    "/api/v1/tests/v1-nothing/changes?metric=shoe_size": (422, "metric"),
    "/api/v1/tests/v1-nothing/changes?over=moons": (422, "over"),
    "/api/v1/tests/v1-nothing/attribution?samples=501": (422, "samples"),
    "/api/v1/tests/v1-nothing/attribution?lines=main": (422, "lines"),
    "/tests/v1-nothing.json": (404, None),
    "/flags/nothing.json": (404, None),
    "/tests.json?cursor=nothing": (400, None),
    "/flags.json?cursor=nothing": (400, None),
}


def test_bad_requests_are_refused_by_name(api: Api) -> None:
    for path, expected in REFUSED.items():
        answer = api.client.get(path)
        assert (answer.status_code, answer.json().get("field")) == expected, path
        assert answer.headers["content-type"] == "application/problem+json"
