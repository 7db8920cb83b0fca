"""Bisections through the API and the background role that steps them.

The tests cover places, masks and fixes, devices, crashes, cancelling, bad input and the page.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Iterator
from typing import Any

import pytest

import stored_jobs
from api import Api, in_process
from bisection_steps import answer, jobs_in_flight, run, serve, step
from gonogo.flakiness.bisecting import Signal, Stage
from gonogo.kernels.registry import KERNELS
from gonogo.spec.builds import EMULATOR, own_builds
from gonogo_service.background import bisections as role
from gonogo_service.bisections import store as bisections
from gonogo_service.bisections.model import SearchTrack
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox import outbox
from stored_histories import row

TEST = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 64], "tolerance": {"rtol": 1e-3, "atol": 0.5}}
SERIES = ["correct"] * 16
"""One build at all places: a probe's place decides its result, not the emulator."""
BAD: list[tuple[dict[str, Any], str]] = [
    ({"builds": ["correct"]}, "builds"),
    ({"builds": ["correct", "no-such-build"]}, "builds.1"),
    ({"builds": ["correct", "group-boundaries"]}, "builds.1"),
    ({"builds": None, "branch": "emulator", "last": "half-groups"}, "last"),
    ({"builds": None}, "builds"),
    ({"branch": "emulator"}, "branch"),
    ({"builds": None, "branch": "nowhere"}, "branch"),
    ({"builds": None, "branch": "emulator", "last": "nobody"}, "last"),
    ({"signal": "colour"}, "signal"),
    ({"max_runs": 1}, "max_runs"),
    ({"test": {"kernel": "layernorm_bw", "shape": [0]}}, "test.shape.0"),
]


class Killed(BaseException):
    """The exception that ends a step before its commit."""


@pytest.fixture
def api(sqlite_url: str) -> Iterator[Api]:
    with in_process(sqlite_url) as service:
        yield service


def begin(api: Api, **changes: Any) -> str:
    response = api.client.post(
        "/api/v1/bisections", json={"test": TEST, "builds": SERIES, **changes}
    )
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def test_a_logic_bug_is_found_by_its_numbers_in_log_n_runs_and_two(database_url: str) -> None:
    with in_process(database_url) as api:
        bisection = run(api, begin(api), lambda place, seed: row(seed, wrong=place >= 11))
        (finding,) = bisection["findings"]
        assert (bisection["conclusion"], finding["place"], finding["kind"]) == (
            "found",
            11,
            "broken",
        )
        assert (
            bisection["runs"] == len(bisection["probes"]) <= 6
        )  # ceil(log2 16) + 2, though every run is green
        assert {probe["verdict"] for probe in bisection["probes"]} == {"pass", "pass_by_tolerance"}
        assert api.get(f"/jobs?label=bisection={bisection['id']}")["items"][0]["seeds"] == [0]
        with api.context.reading() as session:
            messages = [
                message for message in outbox.due(session) if message.topic == "bisection.finished"
            ]
        assert [message.payload for message in messages] == [
            {"bisection": bisection["id"], "version": bisection["version"]}
        ]


def test_masked_at_one_build_and_fixed_at_another(api: Api) -> None:
    """The bug report's story: red, then green with the fault still there, then right."""

    def rows(place: int, seed: int) -> dict[str, Any]:
        return row(seed, wrong=place < 12, within=place >= 5, bits=str(place))

    bisection = run(api, begin(api, signal="both", expect="fix"), rows)
    findings = {
        finding["kind"]: (finding["build"], finding["place"], finding["track"])
        for finding in bisection["findings"]
    }
    assert findings == {"masked": ("correct", 5, "verdicts"), "fixed": ("correct", 12, "numbers")}
    masked = next(finding for finding in bisection["findings"] if finding["kind"] == "masked")
    assert masked["comparison"]["by"] == "faults"
    assert masked["comparison"]["same"] == ["dx: s1 is subtracted twice"]
    assert "masked at" in bisection["words"]
    assert "fixed at" in bisection["words"]


def test_several_changes_and_none(api: Api) -> None:
    bisection = run(api, begin(api), lambda place, seed: row(seed, wrong=6 <= place < 13))
    assert bisection["conclusion"] == "no_change"  # its two ends behave alike
    assert bisection["runs"] == 2
    bisection = run(
        api,
        begin(api, signal="verdicts", expect="regression"),
        lambda place, seed: row(seed, wrong=True, within=place < 9),
    )
    assert [(finding["kind"], finding["place"]) for finding in bisection["findings"]] == [
        ("unmasked", 9)
    ]


def test_as_many_probes_as_devices_are_free_and_builds_that_cannot_run_are_passed_over(
    api: Api,
) -> None:
    with api.context.session() as session:
        serve(session, 4)
    bisection = begin(api)
    assert step(api, bisection)
    with api.context.session() as session:
        assert jobs_in_flight(session) == 4  # both ends, twice: their outcomes are not known yet
        assert not answer(session, bisection, lambda place, seed: None)
    assert not step(api, bisection)  # every device has its probe
    crashed = stored_jobs.unwell(0, "crash", "no image")
    ended_bisection = run(
        api,
        bisection,
        lambda place, seed: (
            {**crashed, "seed": seed} if place in (7, 8) else row(seed, wrong=place > 8)
        ),
    )
    (finding,) = ended_bisection["findings"]
    assert (finding["place"], finding["kind"], finding["between"]) == (
        9,
        "broken",
        ["correct", "correct"],
    )
    assert "could not be tested" in ended_bisection["words"]


@pytest.mark.parametrize(
    ("signal", "words"), [("hang", "more hangs from correct on"), ("crash", "more crashes from")]
)
def test_a_hang_and_a_crash_are_outcomes_that_can_be_bisected(
    api: Api, signal: str, words: str
) -> None:
    place = "no answer within 30 s; under the watcher: core 1-2 waits for a semaphore"

    def rows(number: int, seed: int) -> dict[str, Any]:
        is_bad = number >= 9 and seed % 4 < 3  # three runs of four; the others are wrong or lost
        lost = stored_jobs.unwell(seed, signal if is_bad else "error", place)
        return lost if is_bad or seed == 3 else row(seed, wrong=number < 4)

    bisection = run(api, begin(api, signal=signal), rows)
    (finding,) = bisection["findings"]
    assert (finding["place"], finding["kind"], finding["track"]) == (9, "louder", signal)
    assert bisection["words"].startswith(words)
    assert place in bisection["words"]
    page = html.unescape(api.client.get(f"/bisections/{bisection['id']}").text)
    assert place in page


def test_what_the_database_holds_is_all_that_a_step_needs(api: Api) -> None:
    """A step that dies stores nothing; the next step does its work, once."""
    bisection = begin(api)
    with contextlib.suppress(Killed), api.context.session() as session:
        assert role.step(session, bisection, api.settings, utcnow())
        raise Killed
    assert api.get(f"/bisections/{bisection}")["runs"] == 0
    assert step(api, bisection)
    assert not step(api, bisection)
    assert api.get(f"/bisections/{bisection}")["runs"] == 1
    ended_bisection = run(api, bisection, lambda place, seed: row(seed, wrong=place >= 3))
    assert [finding["place"] for finding in ended_bisection["findings"]] == [3]


def test_cancel_ends_the_jobs_in_flight(api: Api) -> None:
    bisection = begin(api)
    step(api, bisection)
    response = api.client.post(f"/api/v1/bisections/{bisection}:cancel")
    assert (response.status_code, response.json()["state"]) == (202, "cancelled")
    with api.context.session() as session:
        assert jobs_in_flight(session) == 0
    assert not step(api, bisection)
    assert [entry["action"] for entry in api.get(f"/audit?subject={bisection}")["items"]] == [
        "bisection.cancelled",
        "bisection.created",
    ]


def test_bad_input_names_the_field(api: Api) -> None:
    for changes, field in BAD:
        refused = api.client.post(
            "/api/v1/bisections", json={"test": TEST, "builds": SERIES, **changes}
        )
        assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
    assert api.rows()["bisections"] == 0


def test_the_page_draws_the_posterior_and_the_stream_ends_with_the_answer(api: Api) -> None:
    series = {"builds": None, "branch": "emulator", "first": "correct", "last": "tt-train-2025"}
    bisection = begin(api, **series)
    step(api, bisection)
    assert (
        f"/api/v1/bisections/{bisection}/events" in api.client.get(f"/bisections/{bisection}").text
    )
    ended_bisection = run(api, bisection, lambda place, seed: row(seed, wrong=place > 0))
    page = html.unescape(api.client.get(f"/bisections/{bisection}").text)
    assert "data-chart" in page
    assert ended_bisection["words"][1:] in page
    assert "data-events" not in page
    twin = api.client.get(f"/bisections/{bisection}.json").json()
    shares = [line["share"] for line in twin["searches"][0]["builds"]]
    assert max(shares) == shares[1] > 0.95
    assert api.client.get("/bisections.json").json()["items"][0]["id"] == bisection
    assert ended_bisection["words"] in html.unescape(api.client.get("/bisections").text)
    stream = api.client.get(f"/api/v1/bisections/{bisection}/events?after=1").text
    assert f"id: {ended_bisection['version']}" in stream
    assert "event: state" in stream
    assert (
        api.client.get(
            f"/api/v1/bisections/{bisection}/events?after={ended_bisection['version']}"
        ).status_code
        == 204
    )
    missing = "01890000-0000-7000-8000-000000000000"
    assert (
        api.client.get(f"/bisections/{missing}").status_code
        == api.client.get(f"/api/v1/bisections/{missing}").status_code
        == 404
    )


def test_a_branch_gives_the_builds_that_belong_to_the_kernel(api: Api) -> None:
    bisection = begin(api, builds=None, branch="emulator")
    series = api.get(f"/bisections/{bisection}")["builds"]
    assert series == list(KERNELS["layernorm_bw"].emulated_builds)
    assert "group-boundaries" in own_builds(EMULATOR)


def test_the_page_keeps_how_the_posterior_moved(api: Api) -> None:
    begun = begin(api)
    run(api, begun, lambda place, seed: row(seed, wrong=place >= 11))
    search, *_ = api.client.get(f"/bisections/{begun}.json").json()["searches"]
    moves = search["moves"]
    assert [move["runs"] for move in moves] == sorted({move["runs"] for move in moves})
    assert (moves[0]["runs"], len({share for _, share in moves[0]["shares"]})) == (
        0,
        1,
    )  # nothing is known yet
    assert moves[-1]["shares"] == [[11, pytest.approx(search["track"]["probability"], abs=1e-3)]]
    runs, share = moves[-1]["runs"], moves[-1]["probability"]
    assert (
        search["moved"]
        == f"Likeliest: correct after {runs} runs; now with a probability of {share:.3f}."
    )
    dots = {dot["number"]: (dot["place"], dot["bad"]) for dot in search["dots"]}
    assert all(bad is (place >= 11) for place, bad in dots.values())
    page = api.client.get(f"/bisections/{begun}").text
    assert 'id="moves-1"' in page
    assert "The likeliest first changed build after each run" in page
    assert api.client.get(f"/bisections/{begun[::-1]}").status_code == 404
    assert api.client.get("/bisections?cursor=").status_code == 200
    refused = api.client.get("/bisections.json?cursor=x").json()
    assert refused["detail"].startswith("cursor: unknown; follow the link `next`")


def test_of_many_moves_the_older_ones_are_thinned() -> None:
    moves: list[Any] = []
    for runs in range(1000):
        posterior = [(1, 0.5), (2, 0.499), (3, 0.001)]
        rates = {"evidence": 0.0, "place": None, "before": 0.5, "after": 0.5}
        track = SearchTrack(Signal.verdicts, 0, 3, posterior, None, 0.5, Stage.search, **rates)
        moves = bisections.with_move(moves, runs, [track])
    assert len(moves) <= bisections.MAX_MOVES + 1
    assert [move.runs for move in moves] == sorted(move.runs for move in moves)
    assert (moves[0].runs, moves[-1].runs) == (0, 999)
    assert moves[-1].tracks[0].posterior == [(1, 0.5), (2, 0.499)]
