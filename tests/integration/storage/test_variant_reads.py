"""The variants that tests have run as, read for a whole page at once, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import event, update
from sqlalchemy.orm import Session

import nightly_history
import stored_jobs
from database_params import BOTH_ENGINES
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import JobKind
from gonogo_service.overview import search as search_reads
from gonogo_service.tests import recent_builds, standings, test_list, variants
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.test_list import TestFilter

NIGHTLY = stored_jobs.NIGHTLY
OTHER = {**NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.25}}
SMALL = {**NIGHTLY, "shape": [1, 1, 32, 64]}


def submit(current: Session, sequence: int, **changes: Any) -> JobRow:
    """A queued job of one seed."""
    seeds = changes.pop("seeds", [0])
    return nightly_history.submit(
        current, seeds, build=f"b{sequence}", sequence=sequence, **changes
    )


def gauge(current: Session, **changes: Any) -> None:
    """A gauge of the first build."""
    submit(current, 1, **changes).kind = JobKind.gauge
    current.flush()


@BOTH_ENGINES
def test_every_variant_once_and_none_that_was_only_gauged(current: Session) -> None:
    places = [("main", "n150"), ("main", "n300"), ("release", "n150")]
    for sequence in (1, 2, 3):
        for line, board in places:
            last = submit(current, sequence, branch=line, board=board)
    other = submit(current, 1, test=OTHER)
    gauge(current, test=OTHER, branch="gauged")
    by_test = variants.variants_of_all(current, [last.test_key, other.test_key, "v1-nobody"])
    named = {key: [(one.branch, one.board) for one in some] for key, some in by_test.items()}
    assert named == {last.test_key: places, other.test_key: places[:1]}
    assert variants.variants_of(current, other.test_key) == by_test[other.test_key]
    listed = {test.spec.key: test for test in test_list.list_(current).items}
    jobs = {key: (test.job.id, test.job.build) for key, test in listed.items()}
    assert jobs == {last.test_key: (last.id, "b3"), other.test_key: (other.id, "b1")}
    assert {key: test.variants for key, test in listed.items()} == by_test
    stored_jobs.report(current, other.id, [stored_jobs.row(0, wrong=True)])
    stored_jobs.finish(current, other.id)
    waits = submit(current, 2, test=OTHER)
    listed = {test.spec.key: test for test in test_list.list_(current).items}
    assert listed[other.test_key].job.id == waits.id
    # a job that waits has no verdict; the newest build that was judged counts
    [(result,)] = recent_builds.results(current, by_test[other.test_key], 2).values()
    assert (result.job, result.build, result.verdict) == (other.id, "b1", "pass_by_tolerance")


@BOTH_ENGINES
def test_a_variant_that_began_with_a_gauge_is_one_once_a_job_ran(current: Session) -> None:
    gauge(current)
    job = submit(current, 1)
    assert [place.board for place in variants.variants_of(current, job.test_key)] == ["n150"]


def test_standings_read_the_jobs_of_their_days_and_of_the_newest_builds_only(
    current: Session,
) -> None:
    engine, plans = current.get_bind().engine, list[str]()

    def explain(*arguments: Any) -> None:
        _connection, cursor, statement, values, *_ = arguments
        steps = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        plans.extend(step for *_, step in steps)

    current.connection()
    event.listen(engine, "before_cursor_execute", explain)
    standings.read(current, since=utcnow() - standings.WINDOW)
    event.remove(engine, "before_cursor_execute", explain)
    assert any("ix_jobs_newest (test_key=? AND" in step for step in plans), plans
    assert not any(step.startswith("SCAN jobs") for step in plans), plans


@BOTH_ENGINES
def test_a_list_shows_each_test_s_last_builds_and_how_often_its_seeds_failed(
    current: Session,
) -> None:
    now, day = utcnow(), timedelta(days=1)
    for sequence, wrong in ((1, False), (2, True), (3, False), (2, False)):
        night = submit(current, sequence, seeds=range(4))
        rows = [stored_jobs.row(seed, wrong=wrong, within=seed > 0) for seed in range(4)]
        stored_jobs.report(current, night.id, rows)
        stored_jobs.finish(current, night.id)
    [variant] = variants.variants_of(current, night.test_key)
    [results] = recent_builds.results(current, [variant], 2).values()
    green = {"fail_by_tolerance": 1, "pass": 3}
    assert [(result.build, dict(result.counts)) for result in results] == [
        ("b2", {"fail": 1, "pass_by_tolerance": 3, **green}),
        ("b3", green),
    ]
    rates = partial(recent_builds.failure_rates, current, [night.test_key])
    assert {(rate.failed, rate.runs) for rate in rates(now)[variant]} == {(4, 16)}
    week, month = rates(now + 8 * day)[variant]
    assert (week.runs, month.runs) == (0, 16)
    # the newest build passes, with a false alarm; b2 was wrong, too
    newest = standings.read(current, since=now - day)[variant]
    every = standings.read(current, since=now - day, every_build=True)[variant]
    assert (newest.hollow, newest.wrong, newest.false_alarm) == (False, False, True)
    assert (newest.red, newest.flaky, newest.lost) == (True, True, False)
    assert (newest.verdict, every.hollow, every.wrong) == ("fail_by_tolerance", True, True)
    assert standings.read(current, since=now - day, branch="release") == {}
    assert standings.read(current, since=now + day) == {}
    days = standings.by_day(current, standings.Memory(), days=3, now=now + day)
    assert [list(tests) for _, tests in days] == [[], [variant], [variant]]


@BOTH_ENGINES
def test_tests_are_found_by_their_words_and_the_worst_come_first(current: Session) -> None:
    def search(*, sort: str = test_list.NEWEST, **only: Any) -> list[str]:
        chosen = {"sort": sort, "limit": 1}
        pages = [test_list.list_(current, TestFilter(**only), **chosen)]
        while (cursor := pages[-1].next) is not None:
            pages.append(test_list.list_(current, TestFilter(**only), **chosen, cursor=cursor))
        return [names[test.spec.key] for page in pages for test in page.items]

    names, now, hour = {}, utcnow(), timedelta(hours=1)
    forms = {"hollow": NIGHTLY, "tight": OTHER, "small": SMALL}
    for number, (name, test) in enumerate(forms.items()):
        job = submit(current, 1, test=test)
        spec = update(TestSpecRow).where(TestSpecRow.key == job.test_key)
        current.execute(spec.values(created_at=now + timedelta(minutes=number)))
        stored_jobs.report(current, job.id, [stored_jobs.row(0, wrong=name == "hollow")])
        stored_jobs.finish(current, job.id)
        names[job.test_key] = name
    standing = standings.read(current, since=now - standings.WINDOW)
    [key] = [key for key, name in names.items() if name == "tight"]
    every = ["small", "tight", "hollow"]
    for only, tests in (
        ({}, every),
        ({"sort": test_list.ATTENTION, "standings": standing}, ["hollow", "small", "tight"]),
        ({"kind": Kind.hollow, "standings": standing}, ["hollow"]),
        ({"kind": Kind.flagged}, ["hollow"]),
        ({"search": "32×64"}, ["small"]),
        ({"search": "8462 atol=0.25"}, ["tight"]),
        ({"search": key[:12]}, ["tight"]),
        ({"search": "100%"}, []),
        ({"search": "v1-nobody"}, []),
        ({"since": now - hour}, every),
        ({"since": now + hour}, []),
    ):
        assert search(**only) == tests, only
    worst = test_list.worst(current, standing, "main", 1)
    assert [names[test.key] for test in worst] == ["hollow"]
    assert [names[test.key] for test in search_reads.tests(current, "32x64", {}, 5)] == ["small"]
    assert search_reads.tests(current, " ", {}, 5) == ()
    of_build, of_job = [("build", "b1")], [("job", job.id)]
    for text, places in (("32x64", []), ("B1", of_build), (job.id[:20], of_job), (" ", [])):
        hits = search_reads.others(current, text, 5)
        assert [(hit.kind, hit.key) for hit in hits] == places, text
