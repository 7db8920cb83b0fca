"""The overview on SQLite and PostgreSQL: what needs someone, in which order, and how it says that
nothing does."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from html import escape
from typing import Any

import time_machine
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

import stored_jobs
import stored_webhooks
from api import in_process
from gonogo_dashboards.devices import lines as device_lines
from gonogo_dashboards.overview import overview
from gonogo_dashboards.overview.overview import OverviewView
from gonogo_service.devices import changes, workers
from gonogo_service.devices.model import DeviceRow
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAGS
from gonogo_service.hosts import refused_requests
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.model import HostRow
from gonogo_service.jobs import closing
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import DeliveryState, JobState
from gonogo_service.kit.principals import LOCAL, Keys
from gonogo_service.results import tallies
from gonogo_service.results.batch import Batch
from gonogo_service.suites import runs
from gonogo_service.tests import recent_days
from gonogo_service.webhooks import store as webhooks
from suite_runs import conclude


def look(
    engine: Engine, later: timedelta = timedelta(0), memory: overview.Memory | None = None
) -> OverviewView:
    """Return the overview as it is some time from now."""
    with reading(engine) as current:
        return overview.overview(
            current, memory or overview.Memory(), LOCAL, utcnow() + later, 30.0
        )


def test_hollow_findings_come_first_each_kind_with_its_latest(engine: Engine) -> None:
    with session(engine) as current:
        tight = stored_jobs.submit(current, build="correct", seeds=1)
        stored_jobs.report(current, tight.id, [stored_jobs.row(0, wrong=False, within=False)])
        stored_jobs.finish(current, tight.id)
        hollow = [
            stored_jobs.finished(
                current, seeds=2, test={**stored_jobs.NIGHTLY, "epsilon": 1e-5 * (1 + place)}
            )
            for place in range(4)
        ]
        runs = stored_jobs.submit(current)
        stored_jobs.report(current, runs.id, [stored_jobs.row(0, wrong=False)])
        waits = [stored_jobs.submit(current) for _ in range(overview.RUNNING)]
    view = look(engine, timedelta(minutes=5))
    # what runs, then the queue in its order, however many jobs were submitted later
    assert [line.id for line in view.running] == [runs.id, *(job.id for job in waits[:-1])]
    assert view.recent[0].details == "epsilon 4e-05"
    assert [line.id for line in view.recent] == [job.id for job in reversed(hollow)]
    flag_kinds = [(kind.kind, kind.count, len(kind.items)) for kind in view.flags]
    assert flag_kinds == [("passes_by_tolerance", 4, 3), ("tolerance_too_tight", 1, 1)]
    first = view.flags[0].items[0]
    assert first["job_url"] == f"/jobs/{hollow[-1].id}"
    assert first["diagnosis"] == f"dx: {stored_jobs.FAULT}"
    assert {line.name: (line.value, line.of, line.before) for line in view.numbers} == {
        "hollow": (4, 5, None),
        "red": (1, 5, None),
        "flaky": (0, 5, None),
        "devices": (0, 0, None),
    }
    cells = [cell.verdict for row in view.glance.rows for cell in row.cells if cell]
    # the job that runs has a result already: it counts when the job has ended
    assert sorted(cells) == ["fail_by_tolerance", *["pass_by_tolerance"] * 4]
    assert [(need.what, need.count) for need in view.needs] == [
        ("hollow", 4),
        ("red", 1),
        ("queues", 1),
        ("flags", 1),
    ]
    assert [(queue.queue, queue.waiting, queue.stuck) for queue in view.queues] == [
        ("emulator.wormhole.n150", overview.RUNNING + 1, True)
    ]
    assert view.queues[0].oldest_at == runs.created_at
    assert not view.empty


def test_what_someone_has_taken_on_needs_nobody_and_the_page_says_so(engine: Engine) -> None:
    with session(engine) as current:
        stored_jobs.finished(current, seeds=1)
        (flag,) = FLAGS.page(current).items
        change: dict[str, Any] = {"state": "acknowledged", "owner": "ada", "reason": "known"}
        change["expires"] = utcnow() + timedelta(days=1)
        assert flags.change(current, flag.id, change, actor="ada") is not None
        workers.heard(
            current, "w", queues=["emulator.wormhole.n150"], device="a", attempt=None, now=utcnow()
        )
    view = look(engine)
    assert (view.needs, view.flags, view.acknowledged) == ((), (), 1)
    assert not view.all_clear, "a hollow test ran, even if its flag is acknowledged"
    assert view.calm == (
        "Nothing needs attention: no new flags, no new failures in the last 24 hours"
        " and no stuck queues. 1 flag is acknowledged."
        " Among the tests of the last 30 days: 1 hollow."
    )
    assert [(queue.queue, queue.workers, queue.stuck) for queue in view.queues] == [
        ("emulator.wormhole.n150", 1, False)
    ]


def night(current: Session, **rights: bool | None) -> None:
    """Store a run whose tests end green (True), end red (False) or don't end (None). Names with the
    same first letter are the same test."""
    tests = {name: {**stored_jobs.NIGHTLY, "epsilon": 1e-5 * ord(name[0])} for name in rights}
    entries = [
        (name, stored_jobs.new(test=test, build="correct", seeds=1)) for name, test in tests.items()
    ]
    run = runs.create(current, entries, name="nightly", owner="me")
    for member in runs.members(current, run.id):
        right = rights[member.name]
        if right is not None:
            stored_jobs.report(
                current,
                member.id,
                [stored_jobs.row(0, wrong=not right, within=right)],
                diagnosed=not right,
            )
            stored_jobs.finish(current, member.id)
    conclude(current)


def test_a_failure_is_new_if_the_test_was_not_red_in_the_run_before(engine: Engine) -> None:
    with session(engine) as current:
        night(current, a=True, b=False, c=True)
        test = {**stored_jobs.NIGHTLY, "epsilon": 1e-5 * ord("a")}
        compared = stored_jobs.submit(current, build="correct", seeds=1, test=test)
        compared.reference = "another build"
        stored_jobs.report(current, compared.id, [stored_jobs.row(0, wrong=True, within=False)])
        stored_jobs.finish(current, compared.id)
        night(current, a=False, b=False, c=True, d=False, a2=False, e=None)
    view = look(engine)
    # what the same run gave before, or a job beside it, is not the run before
    assert [(line.name, line.before) for line in view.night.new] == [
        ("a", "pass"),
        ("a2", "pass"),
        ("d", None),
        ("b", None),
    ]
    assert (view.night.runs, view.night.ended, view.night.old) == (2, 1, 1)
    assert (
        view.night.words == "2 runs in the last 24 hours, 1 finished: 4 new failures,"
        " 1 that failed in the run before too."
    )
    assert view.night.new[0].words == f"dx: {stored_jobs.FAULT}"
    assert ("failures", 4) in [(need.what, need.count) for need in view.needs]
    assert look(engine, timedelta(days=2)).night.words == "No suite ran in the last 24 hours."


def test_a_bad_device_needs_someone_and_a_busy_one_leads_to_its_job(engine: Engine) -> None:
    with session(engine) as current:
        job = stored_jobs.submit(current)
        stored_jobs.fleet(current, job)
    view = look(engine)
    busy, _, _, bad = view.fleet.cells
    assert busy.line.job is not None
    assert (busy.letter, busy.line.job.url) == ("B", f"/jobs/{job.id}")
    assert bad.sentence == "lab-1/wormhole:3: bad, idle (it hung, and tt-smi -r did not help)"
    assert [trouble.device for trouble in view.fleet.trouble] == [
        "lab-1/wormhole:3",
        "lab-1/wormhole:2",
    ]
    later = look(engine, timedelta(days=8)).numbers[-1]
    assert (view.numbers[-1].before, later.before) == (None, 2)
    assert later.change == "2 sick, 2 a week ago"
    silent = look(engine, timedelta(hours=1)).numbers[-1]
    assert (silent.value, silent.change) == (4, "2 only offline; none was known a week ago")
    sick = [bar.words.split(": ")[1] for bar in later.bars]
    assert sick == ["0 of 0 devices"] * 5 + ["2 of 4 devices"] * 9, "a bar for each day"
    assert [bar.height > 0 for bar in later.bars] == [False] * 5 + [True] * 9
    with session(engine) as current:
        changes.drain_all(current, DeviceRow.host == "lab-1", True, actor="ada", reason="moving")
    assert look(engine).fleet.trouble == ()


def test_days_that_are_over_are_counted_once_and_today_each_time(engine: Engine) -> None:
    now, memory = utcnow().replace(hour=9), recent_days.Memory[Counter[str]]()

    def store(at: datetime, seeds: range) -> None:
        with session(engine) as current:
            locked = closing.lock(current, job.id)
            assert locked is not None
            locked.state = JobState.running
            closing.record(
                current,
                locked,
                new_id(),
                Batch.of([stored_jobs.row(seed, wrong=seed % 2 == 1) for seed in seeds]),
                now=at,
            )

    def totals(at: datetime = now) -> list[int]:
        with reading(engine) as current:
            return [
                sum(counts.values())
                for _, counts in recent_days.read(
                    memory, partial(tallies.verdicts_by_day, current), Counter, days=4, now=at
                )
            ]

    with session(engine) as current:
        job = stored_jobs.submit(current, seeds=20)
    store(now - timedelta(days=3), range(4))
    store(now, range(4, 6))
    assert totals() == [4, 0, 0, 2]
    store(now, range(6, 9))
    store(now - timedelta(days=3), range(9, 10))  # a clock that went back, or a rebuild
    assert totals() == [4, 0, 0, 5]
    assert (
        sum(totals(now.replace(hour=12) + timedelta(days=1))) == 5
    )  # the first day has left the window
    midnight = now.replace(hour=0, minute=20) + timedelta(days=1)
    assert totals(midnight)[2:] == [5, 0]
    store(now.replace(hour=23), range(10, 12))  # committed late
    assert totals(midnight + timedelta(minutes=1))[2:] == [7, 0]


def test_the_page_and_its_twin_say_the_same_in_a_bounded_number_of_statements(
    migrated_sqlite_url: str,
) -> None:
    # in the first hour of a day, yesterday's totals still change and take one statement more
    noon = utcnow().replace(hour=12)
    with time_machine.travel(noon, tick=True), in_process(migrated_sqlite_url) as api:
        assert "gonogo demo" in api.client.get("/").text
        with api.context.session() as current:
            current.add(HostRow(id=new_id(), name="<lab>", queues=["*"], created_at=noon))
            refused_requests.record(current, "<lab>", "sender", "<forged>", now=utcnow())
            stored_jobs.finished(current, seeds=2)
            machines = stored_jobs.fleet(current, stored_jobs.submit(current))
            night(current, a=True, b=False)
            hook = {"kind": "standard", "url": "https://ci", "events": ["*"], "description": ""}
            failing = webhooks.create(current, **hook, secret=None, actor="ada").id
            stored_webhooks.store_tried(current, failing, DeliveryState.failed)
            webhooks.create(current, **hook, secret=None, actor="ada")
        statements: list[str] = []
        event.listen(
            api.context.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
        )
        twin = api.client.get("/overview.json").json()
        of_page = [one for one in statements if "leases" not in one]  # those are the background's
        assert len(of_page) <= 40, of_page
        assert not any("FROM results" in statement for statement in statements)
        page = api.client.get("/").text
        for number in twin["numbers"]:
            assert f'href="{escape(number["url"])}"' in page
        (red,) = (number for number in twin["numbers"] if number["name"] == "red")
        listed = api.client.get(red["url"].replace("/tests", "/tests.json")).json()
        assert len(listed["items"]) == red["value"] == 1, "the list has the tests that are counted"
        assert f'<a class="need v-error" href="/webhooks/{failing}">' in page
        assert {cell["line"]["device"]["id"] for cell in twin["fleet"]["cells"]} == set(
            machines.values()
        )
        assert "<span>flagged host</span>" in page
        for shown in (page, api.client.get("/devices").text):
            assert "<bdi>&lt;lab&gt;</bdi>" in shown
            assert "flagged just now: &lt;forged&gt;" in shown
        assert twin["days"]["seeds"] == 4
        assert list(twin["rates"]) == ["now", "hour", "day"]
        assert datetime.fromisoformat(twin["at"]).tzinfo == UTC


def test_a_flagged_host_needs_someone_for_a_week_and_stays_on_the_list_of_hosts(
    engine: Engine,
) -> None:
    with session(engine) as current:
        for name in ("lab-1", "lab-2"):
            code = hosts.add(current, Keys("k" * 40), name, actor="admin").secret
            hosts.join(current, Keys("k" * 40), code)
        refused_requests.record(current, "lab-2", "age", "400 s old", now=utcnow())
        refused_requests.record(current, "lab-1", "sender", "it spoke for lab-2", now=utcnow())
    view = look(engine)
    assert [(need.what, need.words) for need in view.needs] == [("hosts", "1 flagged host")]
    (flagged,) = view.fleet.flagged
    assert (flagged.device, flagged.words) == (
        "lab-1",
        "host flagged just now: it spoke for lab-2",
    )
    later = timedelta(days=8)
    assert look(engine, later).needs == ()
    with reading(engine) as current:
        shown = device_lines.devices(current, utcnow() + later, 30.0).hosts
    assert [(line.host.name, line.verdict, line.refused, line.flagged) for line in shown] == [
        ("lab-1", "suspect", "sender 1", "8 d ago: it spoke for lab-2"),
        ("lab-2", "pass", "age 1", ""),
    ]
