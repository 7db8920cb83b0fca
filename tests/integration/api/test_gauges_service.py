"""Gauges over HTTP: stored, shown, flagged and graded, with made-up numbers instead of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import event, func, select

import nightly_history
import unchecked
from api import Api
from database_params import BOTH
from gauge_results import EDGE, PASSES, TEST, UNSEEN, answer, dispatched, played
from gonogo.flakiness.rates import Rate, rate
from gonogo.spec.test_spec import TestSpec
from gonogo_service.background import dispatcher
from gonogo_service.gauges import store as gauges
from gonogo_service.gauges.model import GaugeResultRow, GaugeRow
from gonogo_service.jobs import attempts, chunks, dispatching, queues
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import AttemptRow, ChunkRangeRow, EventRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.results.model import JobBlockRow, ResultRow
from gonogo_service.tests import test_specs
from handed_out import hand_out
from job_flow import QUEUE, new_job
from records import pick

KEY = TestSpec.parse(TEST).key
VARIANT = ("emulator", "wormhole", "n150")
SETTINGS = {"executors": "mine=my.module:Factory"}
MISSED = {"double-subtract": PASSES, "drop-s1": PASSES}


def submit(api: Api, **changes: Any) -> str:
    """Submit a gauge of TEST on two seeds; return its id."""
    body = {"test": TEST, "seeds": {"count": 2}, **changes}
    response = api.client.post("/api/v1/gauges", json=body)
    assert response.status_code == 202, response.text
    assert response.headers["Location"] == response.json()["links"]["self"]
    return str(response.json()["id"])


def measured(api: Api, errors: Mapping[str, float], **changes: Any) -> dict[str, Any]:
    """Submit a gauge and run it to its end; return the finished gauge."""
    gauge = submit(api, **changes)
    with api.context.session() as session:
        list(played(session, errors))
    finished: dict[str, Any] = api.get(f"/gauges/{gauge}")
    assert finished["state"] == "finished"
    assert finished["done"] == finished["total"]
    return finished


def only_flag(api: Api) -> dict[str, Any]:
    (flag,) = api.get("/flags?kind=blunt_test")["items"]
    return dict(api.get(f"/flags/{flag['id']}"))


def part(gauge: dict[str, Any], rate: str, name: str) -> tuple[int, int]:
    return pick(gauge["report"][rate]["parts"][name], "count", "of")


def sharpness(api: Api, *variant: str) -> dict[str, Rate]:
    with api.context.reading() as session:
        return gauges.misses(session, KEY, *variant)


def test_a_blunt_test_is_reported_flagged_and_graded_and_no_job_is_seen(api: Api) -> None:
    gauge = measured(api, MISSED)
    assert (gauge["sharpness"], gauge["elsewhere"]) == ("blunt", [])
    assert part(gauge, "misses", "double-subtract") == (2, 2)
    assert part(gauge, "misses", "nan-tile")[0] == 0
    parts = gauge["report"]["misses"]["parts"]
    assert "mean-last-tile-missing" not in parts  # a defect of the forward kernel
    assert not {"hang", "crash"} & set(parts)
    assert gauge["report"]["false_alarms"]["count"] == 0
    assert gauge["report"]["advice"]["works"]
    assert gauge["words"].endswith("all 17 mutants that can show fail.")
    flag = only_flag(api)
    assert pick(flag, "state", "test_key", "branch", "arch", "board") == ("open", KEY, *VARIANT)
    evidence = flag["evidence"]
    assert set(evidence["misses"]) == set(MISSED) == set(evidence["on_every_seed"])
    assert evidence["misses"]["drop-s1"]["high"] == 1.0
    assert evidence["advice"]["tolerance"]["dx"]["atol"] < 0.02
    tolerance = """--tolerance '{"dx":{"rtol":0.001,"atol":0.5}}'"""
    command = f"gonogo gauge --kernel layernorm_bw --shape 8,64 --seeds 2 {tolerance}"
    assert evidence["command"] == command
    check = "gonogo check --kernel layernorm_bw --shape 8,64 --build double-subtract --seeds 1"
    assert evidence["check"].startswith(check)
    graded = sharpness(api, *VARIANT)
    assert pick(graded, "drop-s1", "nan-tile") == tuple(rate(n, 2) for n in (2, 0))
    # a gauge measures the test, not a branch
    assert sharpness(api, "another", *VARIANT[1:]) == graded
    assert sharpness(api, *VARIANT[:2], "n300") == {}
    with api.context.reading() as session:
        assert test_specs.builds_of(session, KEY) == []
        for table in (ResultRow, JobBlockRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        topics = set(session.scalars(select(OutboxRow.topic)))
    assert {"flag.opened", "gauge.finished"} <= topics
    assert "job.finished" not in topics
    assert api.get("/jobs")["items"] == []
    assert api.get(f"/workloads/{gauge['workload_key']}/history")["items"] == []
    for method, rest in (
        ("GET", ""),
        ("GET", "/results"),
        ("POST", ":cancel"),
        ("POST", ":resubmit"),
    ):
        hidden = api.client.request(method, f"/api/v1/jobs/{gauge['id']}{rest}")
        assert hidden.status_code == 404, rest
    (listed,) = api.get(f"/gauges?test={KEY}&sharpness=blunt&state=finished")["items"]
    assert (listed["id"], "report" in listed) == (gauge["id"], False)


def test_a_gauge_has_the_newest_build_of_every_line_graded_anew_whichever_ran_last(
    api: Api,
) -> None:
    with api.context.session() as session:
        lines = (("new", 2, "main"), ("old", 1, "main"), ("bob_jobs", 1, "bob_jobs"))
        new, _, bob = [
            nightly_history.night(session, build, place, range(2), test=TEST, branch=line).id
            for build, place, line in lines
        ]
    gauge = measured(api, MISSED)["id"]
    with api.context.reading() as session:
        requests = select(OutboxRow.payload).where(OutboxRow.key.contains(f":gauge:{gauge}"))
        assert {message["job"] for message in session.scalars(requests)} == {new, bob}


def test_the_pages_show_a_gauge_with_its_gates_and_their_twins_say_the_same(api: Api) -> None:
    gauge = submit(api, gates=["pcc-.999"])
    assert "of 48 runs" in api.client.get(f"/gauges/{gauge}").text
    with api.context.session() as session:
        list(played(session, {**MISSED, "tile-missing": UNSEEN, "nan-tile": math.nan}))
    page = api.client.get(f"/gauges/{gauge}").text
    for words in (
        "Some mutants (known-wrong kernels) pass this test.",
        "s1 is subtracted twice.",
        "couldn't have seen: a common factor below 0.3 %",
        "gonogo gauge --kernel layernorm_bw",
        "2 of 2 [15.8%, 100.0%]",
        "<strong>0 of 8</strong> runs of right kernels fail",
        "<strong>3 of 16</strong> mutants pass",
        "<strong>50×</strong>",
        *("PCC &gt;= .999 alone", "pcc 0.999"),
    ):
        assert words in page
    assert "tt-train-nightly" not in page
    shown = api.get(f"/gauges/{gauge}")["report"]
    assert {name: gate["limit"] for name, gate in shown["gates"].items()} == {
        "pcc-.999": "pcc 0.999"
    }
    assert " --gate pcc-.999 " in shown["command"]["line"]
    twin = api.client.get(f"/gauges/{gauge}.json").json()
    assert twin["gauge"]["sharpness"] == "blunt"
    right, wrong = twin["report"]["models"]
    kernels = "correct, reversed, srcb-bf16 and 1 more"
    assert pick(right, "kernels", "output", "model") == (kernels, "dx", "fused")
    assert "none explains it" in wrong["model"]
    assert wrong["detection_limits"] == []
    lines = {part["name"]: part for part in twin["report"]["parts"]}
    assert (lines["double-subtract"]["rate"]["count"], lines["nan-tile"]["broken"]) == (2, 2)
    assert twin["report"]["elsewhere"][0]["name"] == "offset dy"
    listed = api.client.get("/gauges.json", params={"test": KEY}).json()
    assert [line["id"] for line in listed["items"]] == [gauge]
    assert api.client.get(f"/gauges?test={KEY}").status_code == 200
    # the flag's line links to the gauge, not to a job
    assert f"/gauges/{gauge}" in api.client.get("/").text


def test_the_list_of_many_gauges_takes_no_more_statements_than_that_of_one(api: Api) -> None:
    statements: list[str] = []
    event.listen(
        api.context.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    numbers = []
    for _ in range(3):
        submit(api)
        statements.clear()
        assert api.client.get("/gauges.json").status_code == 200
        numbers.append(len(statements))
    assert len(set(numbers)) == 1, numbers


def test_where_no_tolerance_works_other_inputs_are_tried_once(api: Api) -> None:
    gauge = submit(api)
    with api.context.session() as session:
        first, *others = played(session, {"tile-missing": UNSEEN})
    finished = api.get(f"/gauges/{gauge}")
    inputs = [item.message["test"].get("inputs") for item in others]
    assert first.message["test"].get("inputs") is None
    assert [trial["inputs"] for trial in finished["elsewhere"]] == inputs
    assert {seed for item in others for seed, _ in item.work} == {0}  # advice to try
    assert finished["state"] == "finished"
    assert len(finished["report"]["elsewhere"]) == len(inputs)
    assert finished["total"] == finished["done"] == 24 * (2 + len(inputs))
    assert "No tolerance works with these inputs" in finished["words"]
    # the error is the same there: these inputs show no more
    assert finished["report"]["beyond"].startswith("None of")
    assert measured(api, {"tile-missing": UNSEEN}, search=False)["elsewhere"] == []


@BOTH
def test_a_gauge_that_finds_it_sharp_resolves_the_flag_and_only_such_a_one(api: Api) -> None:
    measured(api, MISSED)
    measured(api, {}, branch="another")
    assert only_flag(api)["state"] == "open"
    assert sharpness(api, *VARIANT)["drop-s1"] == rate(2, 2)
    assert sharpness(api, "third", *VARIANT[1:])["drop-s1"] == rate(0, 2)
    measured(api, dict.fromkeys(MISSED, math.nan))  # the mutants crashed
    assert only_flag(api)["state"] == "open"
    sharp = measured(api, {})
    assert sharp["sharpness"] == "sharp"
    flag = only_flag(api)
    assert flag["state"] == "resolved"
    reasons = [entry["reason"] for entry in flag["history"] if entry["what"] == "resolved"]
    assert any(sharp["id"] in reason for reason in reasons)
    with api.context.reading() as session:
        resolved = select(func.count()).where(OutboxRow.topic == "flag.resolved")
        assert session.scalar(resolved) == 1
    assert sharpness(api, *VARIANT)["drop-s1"] == rate(0, 2)
    measured(api, {"drop-s1": PASSES})
    assert only_flag(api)["state"] == "reopened"


def test_a_lost_attempt_s_runs_are_stored_once_and_what_never_comes_is_broken(api: Api) -> None:
    gauge = submit(api)
    later = utcnow() + timedelta(hours=1)
    with api.context.session() as session:
        (first,) = dispatched(session)
        answer(session, first, MISSED, ended=False)
        assert api.get(f"/gauges/{gauge}")["done"] == 0  # not committed yet
    assert api.get(f"/gauges/{gauge}")["done"] == 24
    with api.context.session() as session:
        attempts.mark_lost(session, first.attempt, "no heartbeat", before=later, now=utcnow())
        (second,) = dispatched(session)
        assert sorted([*second.work, *first.work[:24]]) == sorted(first.work)
        answer(session, second, MISSED)
        answer(session, first, {})  # the lost attempt was alive after all
    finished = api.get(f"/gauges/{gauge}")
    assert pick(finished, "state", "done", "sharpness") == ("finished", 48, "blunt")
    with api.context.reading() as session:
        rows = session.execute(select(GaugeResultRow.seed, GaugeResultRow.part)).all()
        assert len(rows) == len(set(rows)) == 48
        numbers = select(EventRow.number).where(EventRow.job_id == gauge).order_by(EventRow.number)
        numbered = list(session.scalars(numbers))
        assert numbered == list(range(1, len(numbered) + 1))
    gauge = submit(api)
    for _ in range(3):
        with api.context.session() as session:
            (item,) = dispatched(session)
            attempts.mark_lost(session, item.attempt, "no heartbeat", before=later, now=utcnow())
    finished = api.get(f"/gauges/{gauge}")
    assert pick(finished, "state", "sharpness") == ("finished", "unmeasured")
    assert finished["report"]["broken"]["correct"] == 2


def test_rows_of_a_worker_that_knows_no_gauges_are_no_measurement(api: Api) -> None:
    gauge = submit(api, search=False)
    with api.context.session() as session:
        (item,) = dispatched(session)
        plain = {"verdict": "pass", "outputs": {"dx": {"verdict": "pass"}}}
        rows = [{"seed": seed, "repeat": number, **plain} for seed, number in item.work]
        batch = {"batch": 0, "rows": rows, "artifacts": []}
        end = {"outcome": "done", "sent": item.work, "batches": 1}
        unchecked.store(session, item.attempt, batch, now=utcnow())
        unchecked.finished(session, item.attempt, end, now=utcnow())
    finished = api.get(f"/gauges/{gauge}")
    assert finished["sharpness"] == "unmeasured"
    assert finished["report"]["broken"]["correct"] == 2


def test_a_cancelled_gauge_reports_what_has_run_and_flags_nothing(api: Api) -> None:
    def cancel(gauge: str) -> str:
        return str(api.client.post(f"/api/v1/gauges/{gauge}:cancel").json()["state"])

    gauge = submit(api)
    with api.context.session() as session:
        (item,) = dispatched(session)
        answer(session, item, MISSED, ended=False)
    assert cancel(gauge) == "cancelling"
    with api.context.session() as session:
        end = {"outcome": "cancelled", "sent": item.work[:24], "batches": 1}
        unchecked.finished(session, item.attempt, end, now=utcnow())
    cancelled = api.get(f"/gauges/{gauge}")
    assert pick(cancelled, "state", "done", "sharpness") == ("cancelled", 24, "blunt")
    assert api.get("/flags")["items"] == []
    assert (cancel(gauge), cancel(submit(api))) == ("cancelled", "cancelled")  # one had not begun
    assert sharpness(api, *VARIANT) == {}
    assert len(api.get("/audit?action=gauge.cancelled")["items"]) == 2
    assert api.client.post("/api/v1/gauges/nothing:cancel").status_code == 404


def test_builds_of_somebody_s_go_to_the_queue_of_their_executor(api: Api) -> None:
    builds = {"builds": ["right"], "wrong_builds": ["broken"]}
    one = {"start": 5, "count": 1}
    gauge = submit(api, target={"executor": "mine"}, seeds=one, **builds)
    with api.context.session() as session:
        queues.explain(session, ["emulator.wormhole.n150"], now=utcnow())
        row = session.get(GaugeRow, gauge)
        assert row is not None
        assert row.waiting_reason == "no live worker serves the queue mine.wormhole.n150"
        ran = list(played(session, {"mine:broken": PASSES}))
    attempts_of_mine = [item for item in ran if item.message["target"]["executor"] == "mine"]
    assert {(item.message["build"], item.queue, len(item.work)) for item in attempts_of_mine} == {
        ("right", "mine.wormhole.n150", 1),
        ("broken", "mine.wormhole.n150", 1),
    }
    finished = api.get(f"/gauges/{gauge}")
    assert part(finished, "false_alarms", "mine:right") == (0, 1)
    assert part(finished, "misses", "mine:broken") == (1, 1)
    line = only_flag(api)["evidence"]["command"]
    assert "--executor mine --build right --wrong-build broken --seeds 1 --seed-start 5" in line


def test_the_page_draws_the_curves_of_the_comparator_that_is_asked_for(api: Api) -> None:
    address = f"/gauges/{measured(api, MISSED)['id']}"
    shown = api.client.get(f"{address}.json").json()["picture"]
    window = ("allclose rtol 0.001", EDGE, [EDGE, PASSES])
    assert pick(shown, "comparator", "needed", "window") == window
    assert shown["today"] == [{"output": "all outputs", "tolerance": 0.5}]
    assert {turn["part"]: turn["tolerance"] for turn in shown["turns"]}["double-subtract"] == PASSES
    at_today = next(row for row in shown["table"] if row["note"] == "declared")
    assert (at_today["alarms"]["count"], at_today["misses"]["count"]) == (0, 4)
    query = {"comparator": "ulp", "of": "nothing"}
    other = api.client.get(f"{address}.json", params=query).json()["picture"]
    assert pick(other, "comparator", "of", "today") == ("ulp", "all outputs", [])
    page = api.client.get(address, params={"comparator": "<b>"}).text
    assert 'id="chart-curves"' in page
    assert "<b>" not in page
    # where no tolerance works, the page says so, and what works instead
    blind = f"/gauges/{measured(api, {'double-subtract': UNSEEN}, search=False)['id']}"
    picture = api.client.get(f"{blind}.json").json()["picture"]
    assert pick(picture, "window", "instead") == (None, [])
    assert "No window here." in api.client.get(blind).text


def test_a_gauge_yields_to_the_jobs_that_come_after_it(api: Api) -> None:
    """A worker has at most one chunk of a gauge."""
    gauge = submit(api, test={**TEST, "shape": [512, 1024]}, seeds={"count": 20})
    with api.context.session() as session:
        (parts,) = session.scalars(select(ChunkRangeRow).where(ChunkRangeRow.job_id == gauge))
        assert parts.chunks > 2
        assert parts.pair_s * -(-parts.pairs // parts.chunks) <= 5.0

        def next_jobs(*, start: bool = True) -> list[str]:
            """Dispatch what the dispatcher chooses, and say whose chunks these are."""
            chosen = dispatcher.choose(session, chunks.waiting(session), {QUEUE: 1})
            dispatching.dispatch(session, chosen, now=utcnow())
            sent = hand_out(session, now=utcnow())
            for item in sent if start else ():
                unchecked.started(session, item.attempt, {"worker": "w"}, now=utcnow())
            return [item.job for item in sent]

        assert next_jobs(start=False) == [gauge]
        assert next_jobs() == []
        (unstarted,) = session.scalars(select(AttemptRow.id).where(AttemptRow.job_id == gauge))
        unchecked.started(session, unstarted, {"worker": "w"}, now=utcnow())
        bob_jobs = [jobs.create(session, new_job(1, owner="bob")).id for _ in range(4)]
        # bob has more in flight then, but a gauge comes after everyone's jobs
        assert sorted([*next_jobs(), *next_jobs()]) == sorted(bob_jobs)
        assert next_jobs() == [gauge]
        late = jobs.create(session, new_job(1, owner="local", priority=2)).id
        assert next_jobs() == [gauge]  # of equal rank, and older
        waiting = jobs.get(session, late)
        assert waiting is not None
        assert f"{parts.chunks} chunks of gauge {gauge} (" in str(queues.behind(session, waiting))
        session.rollback()
