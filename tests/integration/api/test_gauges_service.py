"""Gauges over HTTP: stored, shown, flagged and graded, with made-up numbers instead of workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select

import nightly_history
import unchecked
from api import JOB, Api, in_process, refusal
from gauge_results import EDGE, FAILS, PASSES, TEST, UNSEEN, answer, dispatched, played
from gonogo.gauge.summary import MeasuredRate
from gonogo.spec.test_spec import TestSpec
from gonogo_service.background import dispatcher
from gonogo_service.gauges import store as gauges
from gonogo_service.gauges.model import GaugeResultRow
from gonogo_service.jobs import attempts, chunks, dispatching, queues
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import AttemptRow, ChunkRangeRow, EventRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.results.model import JobBlockRow, ResultRow
from gonogo_service.tests import test_specs
from handed_out import hand_out
from job_flow import QUEUE, new_job

KEY = TestSpec.parse(TEST).key
VARIANT = ("emulator", "wormhole", "n150")
SETTINGS = {"executors": "mine=my.module:Factory", "max_gauge_runs": 500}
MISSED = {"double-subtract": PASSES, "drop-s1": PASSES}


def submit(api: Api, **changes: Any) -> str:
    """Submit a gauge of TEST on two seeds; return its id."""
    response = api.client.post(
        "/api/v1/gauges", json={"test": TEST, "seeds": {"count": 2}, **changes}
    )
    assert response.status_code == 202, response.text
    assert response.headers["Location"] == response.json()["links"]["self"]
    return str(response.json()["id"])


def measured(api: Api, errors: Mapping[str, float], **changes: Any) -> dict[str, Any]:
    """Submit a gauge and run it to its end; return the finished gauge."""
    gauge = submit(api, **changes)
    with api.context.session() as session:
        list(played(session, errors))
    finished_gauge: dict[str, Any] = api.get(f"/gauges/{gauge}")
    assert finished_gauge["state"] == "finished"
    assert finished_gauge["done"] == finished_gauge["total"]
    return finished_gauge


def only_flag(api: Api) -> dict[str, Any]:
    (flag,) = api.get("/flags?kind=blunt_test")["items"]
    return dict(api.get(f"/flags/{flag['id']}"))


def test_a_blunt_test_is_reported_flagged_and_graded_and_no_job_is_seen(api: Api) -> None:
    gauge = measured(api, MISSED)
    assert gauge["sharpness"] == "blunt"
    parts = gauge["report"]["misses"]["parts"]
    assert (parts["double-subtract"]["count"], parts["double-subtract"]["of"]) == (2, 2)
    assert parts["nan-tile"]["count"] == 0
    assert "mean-last-tile-missing" not in parts  # a defect of the forward kernel
    assert not {"hang", "crash"} & set(parts)
    assert gauge["report"]["false_alarms"]["count"] == 0
    assert gauge["report"]["advice"]["works"]
    assert gauge["elsewhere"] == []
    assert gauge["words"].endswith("all 17 mutants that can show fail.")
    flag = only_flag(api)
    evidence = flag["evidence"]
    assert (flag["test_key"], flag["branch"], flag["arch"], flag["board"]) == (KEY, *VARIANT)
    assert flag["state"] == "open"
    assert set(evidence["misses"]) == set(MISSED) == set(evidence["on_every_seed"])
    assert evidence["misses"]["drop-s1"]["high"] == 1.0
    assert evidence["advice"]["tolerance"]["dx"]["atol"] < 0.02
    assert evidence["command"] == "gonogo gauge --kernel layernorm_bw --shape 8,64 --seeds 2 " + (
        """--tolerance '{"dx":{"rtol":0.001,"atol":0.5}}'"""
    )
    assert evidence["check"].startswith(
        "gonogo check --kernel layernorm_bw --shape 8,64 --build double-subtract --seeds 1"
    )
    with api.context.reading() as session:
        graded = gauges.sharpness_of(session, KEY, *VARIANT)
        assert graded["drop-s1"] == MeasuredRate.counted(2, 2)
        assert graded["nan-tile"] == MeasuredRate.counted(0, 2)
        assert (
            gauges.sharpness_of(session, KEY, "another line", *VARIANT[1:]) == graded
        )  # a gauge measures the test, not a branch
        assert gauges.sharpness_of(session, KEY, *VARIANT[:2], "n300") == {}
        assert test_specs.builds_of(session, KEY) == []
        for table in (ResultRow, JobBlockRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        topics = set(session.scalars(select(OutboxRow.topic)))
        assert {"flag.opened", "gauge.finished"} <= topics
        assert "job.finished" not in topics
    assert api.get("/jobs")["items"] == []
    assert api.get(f"/workloads/{gauge['workload_key']}/history")["items"] == []
    assert [
        api.client.get(f"/api/v1/jobs/{gauge['id']}{rest}").status_code for rest in ("", "/results")
    ] == [404, 404]
    for action in ("cancel", "resubmit"):
        assert api.client.post(f"/api/v1/jobs/{gauge['id']}:{action}").status_code == 404
    (listed,) = api.get(f"/gauges?test={KEY}&sharpness=blunt&state=finished")["items"]
    assert listed["id"] == gauge["id"]
    assert "report" not in listed
    assert api.get("/gauges?sharpness=sharp")["items"] == []


def test_a_gauge_has_the_newest_build_of_every_line_graded_anew_whichever_ran_last(
    api: Api,
) -> None:
    """A gauge requests grades for each line's newest build, even if an older build ran last."""
    with api.context.session() as session:
        lines = (("new", 2, "main"), ("old", 1, "main"), ("bob_jobs", 1, "bob_jobs"))
        jobs = [
            nightly_history.night(session, build, place, range(2), test=TEST, branch=line).id
            for build, place, line in lines
        ]
    gauge = measured(api, MISSED)["id"]
    with api.context.reading() as session:
        messages = session.scalars(
            select(OutboxRow.payload).where(OutboxRow.key.contains(f":gauge:{gauge}"))
        )
        assert {message["job"] for message in messages} == {jobs[0], jobs[2]}


def test_the_pages_show_a_gauge_and_their_twins_say_the_same(api: Api) -> None:
    early = submit(api)
    waiting = api.client.get(f"/gauges/{early}")
    assert waiting.status_code == 200
    assert "of 48 runs" in waiting.text
    with api.context.session() as session:
        list(played(session, {**MISSED, "tile-missing": UNSEEN, "nan-tile": math.nan}))
    page, twin = (
        api.client.get(f"/gauges/{early}").text,
        api.client.get(f"/gauges/{early}.json").json(),
    )
    assert "Some mutants (known-wrong kernels) pass this test." in page
    assert "s1 is subtracted twice." in page
    assert "couldn't have seen: a common factor below 0.3 %" in page
    right, wrong = twin["report"]["models"]
    assert (right["kernels"], right["output"], right["model"]) == (
        "correct, reversed, srcb-bf16 and 1 more",
        "dx",
        "fused",
    )
    assert "none explains it" in wrong["model"]
    assert wrong["detection_limits"] == []
    assert "gonogo gauge --kernel layernorm_bw" in page
    assert twin["gauge"]["sharpness"] == "blunt"
    lines = {part["name"]: part for part in twin["report"]["parts"]}
    assert lines["double-subtract"]["rate"]["count"] == 2
    assert "2 of 2 [15.8%, 100.0%]" in page
    assert lines["nan-tile"]["broken"] == 2
    assert twin["report"]["elsewhere"][0]["name"] == "offset dy"
    listed = api.client.get("/gauges.json", params={"test": KEY}).json()
    assert [line["id"] for line in listed["items"]] == [early]
    assert api.client.get(f"/gauges?test={KEY}").status_code == 200
    assert (
        f"/gauges/{early}" in api.client.get("/").text
    )  # the flag's line links to the gauge, not to a job
    assert [api.client.get(f"/gauges/nothing{suffix}").status_code for suffix in ("", ".json")] == [
        404,
        404,
    ]
    assert api.client.get("/gauges?cursor=x").status_code == 400


def test_a_gauge_shows_the_gates_that_it_was_given_and_repeats_them_in_its_command(
    api: Api,
) -> None:
    gauge = measured(api, MISSED, gates=["pcc-.999"])
    gates = gauge["report"]["gates"]
    assert list(gates) == ["pcc-.999"]
    assert gates["pcc-.999"]["limit"] == "pcc 0.999"
    assert " --gate pcc-.999 " in gauge["report"]["command"]["line"]
    page = api.client.get(f"/gauges/{gauge['id']}").text
    assert "PCC &gt;= .999 alone" in page
    assert "pcc 0.999" in page
    assert "tt-train-nightly" not in page


def test_where_no_tolerance_works_other_inputs_are_tried_once(api: Api) -> None:
    gauge = submit(api)
    with api.context.session() as session:
        ran = list(played(session, {"tile-missing": UNSEEN}))
    finished_gauge = api.get(f"/gauges/{gauge}")
    inputs = [item.message["test"].get("inputs") for item in ran]
    assert inputs[0] is None
    assert [trial["inputs"] for trial in finished_gauge["elsewhere"]] == inputs[1:]
    assert {seed for item in ran[1:] for seed, _ in item.work} == {
        0
    }  # advice to try, not a measurement
    assert finished_gauge["state"] == "finished"
    assert len(finished_gauge["report"]["elsewhere"]) == len(inputs) - 1
    assert finished_gauge["total"] == finished_gauge["done"] == 24 * (2 + len(inputs) - 1)
    assert "No tolerance works with these inputs" in finished_gauge["words"]
    assert finished_gauge["report"]["beyond"].startswith(
        "None of"
    )  # the error is the same there: these inputs show no more
    assert measured(api, {"tile-missing": UNSEEN}, search=False)["elsewhere"] == []


def test_a_gauge_that_finds_it_sharp_resolves_the_flag_and_only_such_a_one(api: Api) -> None:
    measured(api, MISSED)
    measured(api, dict.fromkeys(MISSED, math.nan))  # the mutants crashed
    assert only_flag(api)["state"] == "open"
    measured(api, {}, branch="another")
    assert only_flag(api)["state"] == "open"
    sharp = measured(api, {})
    assert sharp["sharpness"] == "sharp"
    flag = only_flag(api)
    assert flag["state"] == "resolved"
    ended = api.get(f"/flags/{flag['id']}")["history"]
    assert any(
        sharp["id"] in (entry["reason"] or "") for entry in ended if entry["what"] == "resolved"
    )
    with api.context.reading() as session:
        assert (
            session.scalar(
                select(func.count())
                .select_from(OutboxRow)
                .where(OutboxRow.topic == "flag.resolved")
            )
            == 1
        )
        assert gauges.sharpness_of(session, KEY, *VARIANT)["drop-s1"] == MeasuredRate.counted(0, 2)
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
    finished_gauge = api.get(f"/gauges/{gauge}")
    assert (finished_gauge["state"], finished_gauge["done"], finished_gauge["sharpness"]) == (
        "finished",
        48,
        "blunt",
    )
    with api.context.reading() as session:
        rows = session.execute(select(GaugeResultRow.seed, GaugeResultRow.part)).all()
        assert len(rows) == len(set(rows)) == 48
        numbered = list(
            session.scalars(
                select(EventRow.number).where(EventRow.job_id == gauge).order_by(EventRow.number)
            )
        )
        assert numbered == list(range(1, len(numbered) + 1))
    gauge = submit(api)
    for _ in range(3):
        with api.context.session() as session:
            (item,) = dispatched(session)
            attempts.mark_lost(session, item.attempt, "no heartbeat", before=later, now=utcnow())
    finished_gauge = api.get(f"/gauges/{gauge}")
    assert (finished_gauge["state"], finished_gauge["sharpness"]) == ("finished", "unmeasured")
    assert finished_gauge["report"]["broken"]["correct"] == 2


def test_rows_of_a_worker_that_knows_no_gauges_are_no_measurement(api: Api) -> None:
    gauge = submit(api, search=False)
    with api.context.session() as session:
        (item,) = dispatched(session)
        rows = [
            {
                "seed": seed,
                "repeat": number,
                "verdict": "pass",
                "outputs": {"dx": {"verdict": "pass"}},
            }
            for seed, number in item.work
        ]
        unchecked.store(
            session, item.attempt, {"batch": 0, "rows": rows, "artifacts": []}, now=utcnow()
        )
        unchecked.finished(
            session,
            item.attempt,
            {"outcome": "done", "sent": item.work, "batches": 1},
            now=utcnow(),
        )
    finished_gauge = api.get(f"/gauges/{gauge}")
    assert finished_gauge["sharpness"] == "unmeasured"
    assert finished_gauge["report"]["broken"]["correct"] == 2


def test_a_cancelled_gauge_reports_what_has_run_and_flags_nothing(api: Api) -> None:
    gauge = submit(api)
    with api.context.session() as session:
        (item,) = dispatched(session)
        answer(session, item, MISSED, ended=False)
    assert api.client.post(f"/api/v1/gauges/{gauge}:cancel").json()["state"] == "cancelling"
    with api.context.session() as session:
        unchecked.finished(
            session,
            item.attempt,
            {"outcome": "cancelled", "sent": item.work[:24], "batches": 1},
            now=utcnow(),
        )
    cancelled_gauge = api.get(f"/gauges/{gauge}")
    assert (cancelled_gauge["state"], cancelled_gauge["done"], cancelled_gauge["sharpness"]) == (
        "cancelled",
        24,
        "blunt",
    )
    assert api.get("/flags")["items"] == []
    assert api.client.post(f"/api/v1/gauges/{gauge}:cancel").json()["state"] == "cancelled"
    unstarted = submit(api)
    assert api.client.post(f"/api/v1/gauges/{unstarted}:cancel").json()["state"] == "cancelled"
    with api.context.reading() as session:
        assert gauges.sharpness_of(session, KEY, *VARIANT) == {}
    actions = [entry["action"] for entry in api.get("/audit")["items"]]
    assert actions.count("gauge.created") == 2
    assert actions.count("gauge.cancelled") == 2
    assert api.client.post("/api/v1/gauges/nothing:cancel").status_code == 404


def test_builds_of_somebody_s_go_to_the_queue_of_their_executor(api: Api) -> None:
    gauge = submit(
        api,
        target={"executor": "mine"},
        builds=["right"],
        wrong_builds=["broken"],
        seeds={"start": 5, "count": 1},
    )
    with api.context.session() as session:
        queues.explain(session, ["emulator.wormhole.n150"], now=utcnow())
        assert (
            gauges.get(session, gauge).waiting_reason
            == "no live worker serves the queue mine.wormhole.n150"
        )  # type: ignore[index]
        ran = list(played(session, {"mine:broken": PASSES}))
    plugin_attempts = {
        item.message["build"]: item for item in ran if item.message["target"]["executor"] == "mine"
    }
    assert set(plugin_attempts) == {"right", "broken"}
    assert {item.queue for item in plugin_attempts.values()} == {"mine.wormhole.n150"}
    assert all(len(item.work) == 1 for item in plugin_attempts.values())
    finished_gauge = api.get(f"/gauges/{gauge}")
    assert finished_gauge["report"]["false_alarms"]["parts"]["mine:right"]["count"] == 0
    assert finished_gauge["report"]["misses"]["parts"]["mine:broken"]["count"] == 1
    line = only_flag(api)["evidence"]["command"]
    assert "--executor mine --build right --wrong-build broken --seeds 1 --seed-start 5" in line


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"test": {"selection": {"suite": "x"}}}, "test.selection", "kernel"),
    ({"test": {**TEST, "shape": [2**14, 2**13]}}, "test.shape", "GONOGO_MAX_ELEMENTS"),
    ({"test": {**TEST, "kernel": "softmx"}}, "test.kernel", "layernorm_bw"),
    ({"seeds": {"count": 21}}, "seeds.count", "GONOGO_MAX_GAUGE_RUNS"),
    ({"seeds": {"count": 10**15}}, "seeds.count", "500"),
    ({"seeds": {"start": 2**53 - 1, "count": 2}}, "seeds", str(2**53 - 1)),
    ({"seeds": [1, 2]}, "seeds", ""),
    ({"builds": ["correct"]}, "builds.0", "executor"),
    (
        {"target": {"executor": "mine"}, "builds": ["a"], "wrong_builds": ["b", "a"]},
        "wrong_builds.1",
        "twice",
    ),
    ({"target": {"executor": "nobody"}, "builds": ["a"]}, "target.executor", "mine"),
    (
        {"target": {"executor": "ttnn"}, "builds": ["ttnn"], "wrong_builds": ["ttnn-legacy"]},
        "wrong_builds.0",
        "produces no output of layernorm_bw",
    ),
    ({"branch": ""}, "branch", ""),
    ({"sharp": True}, "sharp", ""),
    ({"gates": ["ulp-1", "kernelbnch"]}, "gates.1", "did you mean 'kernelbench'?"),
]


def test_bad_input_is_told_by_field_and_stores_nothing(api: Api) -> None:
    before = api.rows()
    for changes, field, phrase in BAD:
        body = {"test": TEST, "seeds": {"count": 2}, **changes}
        response = api.client.post("/api/v1/gauges", json=body)
        assert refusal(response) == (422, field)
        assert phrase in response.text
    assert api.rows() == before


def test_on_postgres_it_is_the_same(postgres_url: str) -> None:
    with in_process(postgres_url) as api:
        gauge = measured(api, {**MISSED, "tile-missing": UNSEEN})
        assert (gauge["sharpness"], len(gauge["report"]["elsewhere"])) == ("blunt", 4)
        assert only_flag(api)["evidence"]["gauge"] == gauge["id"]
        measured(api, {}, branch="another")
        with api.context.reading() as session:
            assert gauges.sharpness_of(session, KEY, *VARIANT)["drop-s1"] == MeasuredRate.counted(
                2, 2
            )
            assert gauges.sharpness_of(session, KEY, "a third", *VARIANT[1:])[
                "drop-s1"
            ] == MeasuredRate.counted(0, 2)
        assert len(api.get("/gauges?state=finished&limit=1")["items"]) == 1


def test_the_page_draws_the_curves_of_the_comparator_that_is_asked_for(api: Api) -> None:
    gauge = measured(api, MISSED)["id"]
    shown = api.client.get(f"/gauges/{gauge}.json").json()["picture"]
    assert (shown["comparator"], shown["needed"], shown["window"]) == (
        "allclose rtol 0.001",
        EDGE,
        [EDGE, PASSES],
    )
    assert shown["today"] == [{"output": "all outputs", "tolerance": 0.5}]
    assert {turn["part"]: turn["tolerance"] for turn in shown["turns"]}["double-subtract"] == PASSES
    at_today = next(row for row in shown["table"] if row["note"] == "declared")
    assert (at_today["alarms"]["count"], at_today["misses"]["count"]) == (0, 4)
    other = api.client.get(
        f"/gauges/{gauge}.json", params={"comparator": "ulp", "of": "nothing"}
    ).json()["picture"]
    assert (other["comparator"], other["of"], other["today"]) == ("ulp", "all outputs", [])
    page = api.client.get(f"/gauges/{gauge}", params={"comparator": "<b>"}).text
    assert 'id="chart-curves"' in page
    assert "<b>" not in page
    # where no tolerance works, the page says so, and what works instead
    blind = measured(api, {"double-subtract": UNSEEN}, search=False)
    picture = api.client.get(f"/gauges/{blind['id']}.json").json()["picture"]
    assert (picture["window"], picture["instead"]) == (None, [])
    assert "No window here." in api.client.get(f"/gauges/{blind['id']}").text
    assert api.client.get("/gauges/nothing").status_code == 404
    assert (
        api.client.get("/gauges.json?cursor=x").json()["detail"]
        == "cursor: unknown; follow the link `next` of this list"
    )


def test_a_gauge_yields_to_the_jobs_that_come_after_it(api: Api) -> None:
    """The dispatcher's own choice, on the database: a worker has at most one chunk of a gauge."""
    live = {QUEUE: 1}
    gauge = submit(api, test={**TEST, "shape": [512, 1024]}, seeds={"count": 20})
    with api.context.session() as session:
        (parts,) = session.scalars(select(ChunkRangeRow).where(ChunkRangeRow.job_id == gauge))
        assert parts.chunks > 2
        assert parts.pair_s * -(-parts.pairs // parts.chunks) <= 5.0

        def next_jobs(*, start: bool = True) -> list[str]:
            """Dispatch what the dispatcher chooses, and say whose chunks these are."""
            chosen = dispatcher.choose(session, chunks.waiting(session), live)
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


def test_the_same_key_makes_one_gauge_and_jobs_beside_it_keep_their_counts(api: Api) -> None:
    body = {"test": TEST, "seeds": {"count": 1}}
    first, again = (
        api.client.post("/api/v1/gauges", json=body, headers={"Idempotency-Key": "k"}).json()["id"]
        for _ in range(2)
    )
    assert first == again
    job = api.submit(test=JOB["test"])
    assert [listed_job["id"] for listed_job in api.get("/jobs")["items"]] == [job]
    assert FAILS > 0.5 > PASSES  # atol 0.5 stops the first error and lets the second one pass
