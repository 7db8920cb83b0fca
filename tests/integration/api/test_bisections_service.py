"""Bisections through the API and the background role that steps them: places, masks and fixes,
devices, crashes, cancelling, and the page."""

from __future__ import annotations

import contextlib
import html
from typing import Any

import pytest

import stored_jobs
from api import Api
from bisection_steps import answer, jobs_in_flight, run, serve, step
from database_params import BOTH
from gonogo.flakiness.bisecting import Signal, Stage
from gonogo.kernels.registry import KERNELS
from gonogo.spec.builds import EMULATOR, own_builds
from gonogo_service.background import bisections as role
from gonogo_service.bisections import store as bisections
from gonogo_service.bisections.model import SearchTrack
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox import outbox
from records import pick
from stored_histories import row

TEST = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 64], "tolerance": {"rtol": 1e-3, "atol": 0.5}}
SERIES = ["correct"] * 16
"""One build at all places: a probe's place decides its result, not the emulator."""


class Killed(BaseException):
    """The exception that ends a step before its commit."""


def begin(api: Api, **changes: Any) -> str:
    body = {"test": TEST, "builds": SERIES, **changes}
    response = api.client.post("/api/v1/bisections", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


@BOTH
def test_a_logic_bug_is_found_by_its_numbers_in_log_n_runs_and_two(api: Api) -> None:
    bisection = run(api, begin(api), lambda place, seed: row(seed, wrong=place >= 11))
    (finding,) = bisection["findings"]
    assert (bisection["conclusion"], *pick(finding, "place", "kind")) == ("found", 11, "broken")
    # ceil(log2 16) + 2, though every run is green
    assert bisection["runs"] == len(bisection["probes"]) <= 6
    assert {probe["verdict"] for probe in bisection["probes"]} == {"pass", "pass_by_tolerance"}
    assert api.get(f"/jobs?label=bisection={bisection['id']}")["items"][0]["seeds"] == [0]
    with api.context.reading() as session:
        (message,) = outbox.due(session, topics=["bisection.finished"])
        assert message.payload == {"bisection": bisection["id"], "version": bisection["version"]}


def test_masked_at_one_build_and_fixed_at_another(api: Api) -> None:
    """The bug report's story: red, then green with the fault still there, then right."""

    def rows(place: int, seed: int) -> dict[str, Any]:
        return row(seed, wrong=place < 12, within=place >= 5, bits=str(place))

    bisection = run(api, begin(api, signal="both", expect="fix"), rows)
    findings = {finding["kind"]: finding for finding in bisection["findings"]}
    places = {kind: pick(one, "build", "place", "track") for kind, one in findings.items()}
    assert places == {"masked": ("correct", 5, "verdicts"), "fixed": ("correct", 12, "numbers")}
    masked = findings["masked"]["comparison"]
    assert pick(masked, "by", "same") == ("faults", ["dx: s1 is subtracted twice"])
    assert "masked at" in bisection["words"]
    assert "fixed at" in bisection["words"]


def test_several_changes_and_none(api: Api) -> None:
    bisection = run(api, begin(api), lambda place, seed: row(seed, wrong=6 <= place < 13))
    assert pick(bisection, "conclusion", "runs") == ("no_change", 2)  # its two ends behave alike
    unmasking = begin(api, signal="verdicts", expect="regression")
    bisection = run(api, unmasking, lambda place, seed: row(seed, wrong=True, within=place < 9))
    assert [pick(one, "kind", "place") for one in bisection["findings"]] == [("unmasked", 9)]


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
    short = begin(api, max_runs=2)
    assert [step(api, short) for _ in range(2)] == [True, False]  # it may start no more
    assert api.client.post(f"/api/v1/bisections/{short}:cancel").status_code == 202

    def rows(place: int, seed: int) -> dict[str, Any]:
        lost = stored_jobs.unwell(seed, "crash", "no image")
        return lost if place in (7, 8) else row(seed, wrong=place > 8)

    ended = run(api, bisection, rows)
    (finding,) = ended["findings"]
    expected = (9, "broken", ["correct", "correct"])
    assert pick(finding, "place", "kind", "between") == expected
    assert "could not be tested" in ended["words"]


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
    assert pick(finding, "place", "kind", "track") == (9, "louder", signal)
    assert bisection["words"].startswith(words)
    assert place in bisection["words"]
    assert place in html.unescape(api.client.get(f"/bisections/{bisection['id']}").text)


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
    ended = run(api, bisection, lambda place, seed: row(seed, wrong=place >= 3))
    assert [finding["place"] for finding in ended["findings"]] == [3]


def test_cancel_ends_the_jobs_in_flight(api: Api) -> None:
    bisection = begin(api)
    step(api, bisection)
    response = api.client.post(f"/api/v1/bisections/{bisection}:cancel")
    assert (response.status_code, response.json()["state"]) == (202, "cancelled")
    with api.context.session() as session:
        assert jobs_in_flight(session) == 0
    assert not step(api, bisection)
    last, _ = api.get(f"/audit?subject={bisection}")["items"]
    assert last["action"] == "bisection.cancelled"


def test_the_page_draws_the_posterior_and_the_stream_ends_with_the_answer(api: Api) -> None:
    series = {"builds": None, "branch": "emulator", "first": "correct", "last": "tt-train-2025"}
    bisection = begin(api, **series)
    step(api, bisection)
    stream = f"/api/v1/bisections/{bisection}/events"
    assert stream in api.client.get(f"/bisections/{bisection}").text
    ended = run(api, bisection, lambda place, seed: row(seed, wrong=place > 0))
    page = html.unescape(api.client.get(f"/bisections/{bisection}").text)
    assert "data-chart" in page
    assert ended["words"][1:] in page
    assert "data-events" not in page
    twin = api.client.get(f"/bisections/{bisection}.json").json()
    shares = [line["share"] for line in twin["searches"][0]["builds"]]
    assert max(shares) == shares[1] > 0.95
    assert api.client.get("/bisections.json").json()["items"][0]["id"] == bisection
    assert ended["words"] in html.unescape(api.client.get("/bisections").text)
    events = api.client.get(f"{stream}?after=1").text
    assert f"id: {ended['version']}" in events
    assert "event: state" in events
    assert api.client.get(f"{stream}?after={ended['version']}").status_code == 204


def test_a_branch_gives_the_builds_that_belong_to_the_kernel(api: Api) -> None:
    bisection = begin(api, builds=None, branch="emulator")
    series = api.get(f"/bisections/{bisection}")["builds"]
    assert series == list(KERNELS["layernorm_bw"].emulated_builds)
    assert "group-boundaries" in own_builds(EMULATOR)


def test_the_page_keeps_how_the_posterior_moved(api: Api) -> None:
    begun = begin(api)
    run(api, begun, lambda place, seed: row(seed, wrong=place >= 11))
    search, *_ = api.client.get(f"/bisections/{begun}.json").json()["searches"]
    first, *_, last = moves = search["moves"]
    assert [move["runs"] for move in moves] == sorted({move["runs"] for move in moves})
    assert first["runs"] == 0
    assert len({share for _, share in first["shares"]}) == 1  # nothing is known yet
    assert last["shares"] == [[11, pytest.approx(search["track"]["probability"], abs=1e-3)]]
    sentence = "Likeliest: correct after {runs} runs; now with a probability of {probability:.3f}."
    assert search["moved"] == sentence.format(**last)
    dots = {dot["number"]: (dot["place"], dot["bad"]) for dot in search["dots"]}
    assert all(bad is (place >= 11) for place, bad in dots.values())
    page = api.client.get(f"/bisections/{begun}").text
    assert 'id="moves-1"' in page
    assert "The likeliest first changed build after each run" in page


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
