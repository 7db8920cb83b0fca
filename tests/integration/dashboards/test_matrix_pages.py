"""The build matrix and the strip plot from stored jobs: their reads on SQLite and PostgreSQL, their
pages and JSON twins."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from sqlalchemy import Engine, select

import gauge_results
import nightly_history
import stored_jobs
from api import Api
from gonogo.closeness import NEEDED_RTOLS
from gonogo.settings import Settings
from gonogo.spec.test_spec import TestSpec
from gonogo_dashboards.comparison import compare_page, worse_page
from gonogo_dashboards.matrix import matrix_page
from gonogo_dashboards.tests import strip as strips
from gonogo_dashboards.tests import test_page
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import BadCursor
from gonogo_service.results import worst
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import assessing, assessments
from gonogo_service.tests import matrices as matrix_reads
from gonogo_service.tests.variants import Variant, jobs_of

EVIL = "<img src=x onerror=alert(1)>\u202e" + "long-" * 30
TIGHT = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.25}}


def test_tests_by_builds_are_read_from_the_sums(engine: Engine) -> None:
    with engines.session(engine) as session:
        key = nightly_history.masked(session)
        other = nightly_history.night(
            session, "fixed-4c1e", 4, range(2), test=TIGHT, board="n300"
        ).test_key
        lost = nightly_history.submit(session, [0, 1], test=TIGHT, build="b0304ff7a5", sequence=3)
        stored_jobs.report(
            session,
            lost.id,
            [
                nightly_history.row(0, wrong=True, within=True, bits="b"),
                stored_jobs.unwell(1, "error", "no device"),
            ],
        )
        stored_jobs.finish(session, lost.id)
        nightly_history.submit(session, [0], build="elsewhere", sequence=1, branch="other")
        job = session.scalars(
            select(JobRow).where(JobRow.test_key == other, JobRow.board == "n300")
        ).one()
        session.add(JobLabelRow(job_id=job.id, name="team", value="norms"))
        run = new_id()
        session.add(
            RunRow(
                id=run,
                name="nightly",
                created_at=utcnow(),
                state="finished",
                owner="ada",
                builds=[],
                labels={},
                job_count=1,
                total=2,
                counts={},
                job_counts={},
            )
        )
        session.flush()
        session.add(RunJobRow(run_id=run, number=0, job_id=job.id, name="tight"))
        assessment = assessing.assess(session, job.id)
        assert assessment is not None
        assessments.put(session, assessment, now=utcnow())
    later = utcnow() + timedelta(minutes=1)

    def read(
        cursor: str | None = None, limit: int = 50, columns: int = 20, **query: str
    ) -> matrix_page.MatrixView:
        with engines.reading(engine) as session:
            given = {"branch": "main", "builds": str(columns), **query}
            return matrix_page.read(session, given, cursor, limit, later)

    view = read()
    assert (view.branch, view.branches) == ("main", ("main", "other"))
    assert [build.name for build in view.builds] == [
        "fixed-4c1e",
        "b0304ff7a5",
        "b747edd158",
        "9ca166977b",
    ]
    shown = {
        (row.test, row.board): [cell and cell.verdict for cell in row.cells] for row in view.rows
    }
    assert shown == {
        (key, "n150"): ["pass", "pass_by_tolerance", "fail", "fail"],
        (other, "n150"): [None, "pass_by_tolerance", None, None],
        (other, "n300"): ["pass", None, None, None],
    }
    assert [(build.hollow, build.red) for build in view.builds] == [(0, 0), (2, 0), (0, 1), (0, 1)]
    assert view.summary == (
        "3 tests on 4 builds of main."
        " On fixed-4c1e, the newest that ran: 0 hollow passes and 0 red of 2 tests."
    )
    [half] = [row.cells[1] for row in view.rows if (row.test, row.board) == (other, "n150")]
    assert half is not None
    assert (half.seeds, half.lost, half.hollow) == (2, 1, True)
    assert (half.verdict, half.words) == ("pass_by_tolerance", "1 error, 1 hollow pass")
    assert not view.mixed
    urls = {line.url for line in view.items}
    assert f"/tests/{other}?branch=main&arch=wormhole&board=n150&build=b0304ff7a5" in urls
    # filters, older builds, more tests
    assert {row.board for row in read(board="n300").rows} == {"n300"}
    assert {row.test for row in read(verdict="fail").rows} == {key}
    assert read(verdict="fail'\"$").rows == read(kernel="softmax").rows == ()
    for filters in (
        {"label": "team"},
        {"label": "team=norms"},
        {"suite": "nightly"},
        {"grade": assessment.grade.stability.value},
    ):
        assert {row.test for row in read(**filters).rows} == {other}, filters
    for unmatched in (
        {"label": "team=none"},
        {"suite": "x' OR 1"},
        {"grade": "blunt"},
        {"grade": "x"},
        {"suite": "nightly", "board": "n150"},
    ):
        assert not read(**unmatched).rows, unmatched
    assert (view.suites, read(suite="weekly").suites) == (("nightly",), ("nightly", "weekly"))
    # a column leads to what it did to the one before, a column of older builds too
    assert view.builds[0].compare_url == "/compare?base=b0304ff7a5&head=fixed-4c1e"
    assert [build.compare_url for build in view.builds][-1] is None
    assert read(columns=2).builds[-1].compare_url == "/compare?base=b747edd158&head=b0304ff7a5"
    two = read(columns=2)
    assert (len(two.builds), two.older) == (2, 2)
    assert two.older_url == "/matrix?branch=main&builds=2&until=b747edd158"
    older = read(columns=2, until="b747edd158")
    assert [build.name for build in older.builds] == ["b747edd158", "9ca166977b"]
    # the worst come first, whichever was submitted last
    assert [row.test for row in view.rows] == [other, other, key]
    first = read(limit=1)
    assert first.next is not None
    assert {row.test for row in first.rows} | {row.test for row in read(first.next, 1).rows} == {
        key,
        other,
    }
    with pytest.raises(BadCursor):
        read("no such test")
    assert not read(branch="nowhere").builds
    with engines.reading(engine) as session:
        assert [build.branch for build in matrix_reads.builds(session)].count("other") == 1


def test_the_strip_has_every_seed_with_the_lines_that_its_statistics_tell(engine: Engine) -> None:
    spec = TestSpec.parse(stored_jobs.NIGHTLY)
    with engines.session(engine) as session:
        key = nightly_history.masked(session)
        mixed = nightly_history.submit(session, range(6), build="mixed", sequence=5)
        rows = [
            nightly_history.row(seed, wrong=seed == 2, within=True, bits="m") for seed in range(5)
        ]
        for row in rows:
            needed = row["outputs"]["dx"]["tolerance_ratio"] * 0.5
            row["outputs"]["dx"]["needed_atol"] = {f"{rtol:g}": needed for rtol in NEEDED_RTOLS}
        stored_jobs.report(session, mixed.id, [*rows, stored_jobs.unwell(5, "hang", "no answer")])
        stored_jobs.finish(session, mixed.id)
        about = {"test": spec.canonical(), "branch": "main", "seeds": {"count": 1}}
        target = {"arch": "wormhole", "board": "n150"}
        gauge = GaugeIn.parse({**about, "target": target, "search": False})
        for _ in gauge_results.played(session, {"double-subtract": gauge_results.PASSES}):
            raise AssertionError("nothing waits yet")
        gauges.submit(session, gauge, Settings(), "local")
        list(gauge_results.played(session, {"double-subtract": gauge_results.PASSES}))
    with engines.reading(engine) as session:
        view = test_page.one(session, key, {}, utcnow())
        stored = worst.marks(
            session,
            jobs_of(session, Variant(key, "main", "wormhole", "n150")),
            "dx",
            "tolerance_ratio",
        )
    assert view is not None
    assert view["strip"] is not None
    strip = view["strip"]
    assert (strip.output, strip.metric, strip.total, strip.whole) == (
        "dx",
        "tolerance_ratio",
        26,
        True,
    )
    assert [(column.build, column.shown) for column in strip.columns] == [
        ("9ca166977b", 5),
        ("b747edd158", 5),
        ("b0304ff7a5", 5),
        ("fixed-4c1e", 5),
        ("mixed", 6),
    ]
    assert {(mark.job, mark.seed, mark.value) for mark in strip.marks} == {
        (seed.job, seed.seed, seed.value) for seed in stored
    }
    bands = {(band.column, band.beyond): band for band in strip.bands}
    assert set(bands) == {(0, True), (1, True), (2, True), (3, False), (4, False), (4, True)}
    for mark in (
        strip.marks
    ):  # a green one that is wrong lies in the gap, a right one at most about its line
        band = bands[round(mark.x), mark.verdict not in ("pass", "hang")]
        assert band.left <= mark.x <= band.right
        if mark.verdict == "pass_by_tolerance":
            assert band.rounding is not None
            assert mark.value is not None
            assert band.rounding < mark.value < 1 == band.declared
        elif mark.verdict == "pass" and mark.value is not None:
            assert band.rounding is not None
            assert mark.value < 1.2 * band.rounding
    assert strip.columns[4].unnumbered == 1
    assert "green and not explained by rounding: 2 builds (b0304ff7a5, mixed)" in strip.summary
    assert strip.worst[0].mark.verdict == "hang"
    # the gauge: its advised tolerance is a line where the stored statistics tell it
    assert view["gauge"] is not None
    assert bands[4, True].advised is not None
    assert bands[4, True].advised < strip.worst[1].mark.value  # what is wrong would be red


def test_of_many_seeds_each_build_shows_its_worst_and_the_range_of_all(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in ((strips, "MAX_MARKS", 40), (strips, "WORST_MARKS", 24)):
        monkeypatch.setattr(module, name, value)
    with engines.session(engine) as session:
        key = nightly_history.night(session, "old", 1, range(20), wrong=True).test_key
        new = nightly_history.submit(session, range(40), build="new", sequence=2)
        rows = [
            nightly_history.row(seed, wrong=seed == 3, within=True, bits="n") for seed in range(39)
        ]
        stored_jobs.report(session, new.id, [*rows, stored_jobs.unwell(39, "crash", "signal 11")])
        stored_jobs.finish(session, new.id)
    variant = Variant(key, "main", "wormhole", "n150")
    with engines.reading(engine) as session:
        strip = strips.read(
            session, jobs_of(session, variant), "dx", stored_jobs.NIGHTLY, {}, {"branch": "main"}
        )
    assert strip is not None
    assert (strip.total, strip.whole) == (60, False)
    old, fresh = strip.columns
    assert (old.shown, fresh.shown, fresh.seeds) == (12, 13, 40)
    new_marks = [mark for mark in strip.marks if round(mark.x) == 1]
    # each verdict has its share: the one hollow seed, the crash, and of those that pass the worst
    right = [row["outputs"]["dx"] for row in rows if row["verdict"] == "pass"]
    worst = sorted(right, key=lambda dx: -dx["rounding_ratio"])[:24]
    shown = {mark.value for mark in new_marks if mark.verdict == "pass"}
    assert len(shown) == 11
    assert shown <= {dx["tolerance_ratio"] for dx in worst}
    assert [mark.seed for mark in new_marks if mark.verdict == "pass_by_tolerance"] == [3]
    assert [mark.seed for mark in new_marks if mark.verdict == "crash"] == [39]
    values = sorted(row["outputs"]["dx"]["tolerance_ratio"] for row in rows)
    assert (fresh.low, fresh.high) == (pytest.approx(values[0]), pytest.approx(values[-1]))
    assert fresh.middle == pytest.approx(values[19], rel=0.02)
    assert {tally.verdict: tally.count for tally in fresh.counts} == {
        "pass": 38,
        "pass_by_tolerance": 1,
    }
    assert fresh.most_to == pytest.approx(values[35], rel=0.02)
    assert len(strip.marks) <= 24 + 2 * 2
    # what has a number that is no number is looked for beside those that have one
    with engines.session(engine) as session:
        strange = nightly_history.submit(session, range(50), build="strange", sequence=3)
        odd = nightly_history.row(49, wrong=True, within=False, bits="s")
        odd["outputs"]["dx"] |= {
            "tolerance_ratio": None,
            "rounding_ratio": None,
            "nonfinite_statistics": {"tolerance_ratio": "nan"},
        }
        stored_jobs.report(
            session,
            strange.id,
            [
                *(
                    nightly_history.row(seed, wrong=False, within=True, bits="s")
                    for seed in range(49)
                ),
                odd,
            ],
        )
        stored_jobs.finish(session, strange.id)
    with engines.reading(engine) as session:
        strip = strips.read(
            session, jobs_of(session, variant), "dx", stored_jobs.NIGHTLY, {}, {"branch": "main"}
        )
    assert strip is not None
    odd_ones = [mark for mark in strip.marks if round(mark.x) == 2 and mark.verdict != "pass"]
    assert [(mark.seed, mark.verdict, mark.value) for mark in odd_ones] == [(49, "fail", None)]


def test_the_pages_say_what_their_twins_say_and_hostile_names_stay_text(api: Api) -> None:
    empty = api.client.get("/matrix")
    assert (empty.status_code, "No build has run yet" in empty.text) == (200, True)
    assert api.client.get("/matrix.json").json()["rows"] == []
    with api.context.session() as session:
        key = nightly_history.masked(session)
        nightly_history.night(session, EVIL, 9, range(2))
    page, twin = (
        api.client.get("/matrix?builds=3").text,
        api.client.get("/matrix.json?builds=3").json(),
    )
    assert EVIL not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert [build["name"] for build in twin["builds"]] == [EVIL, "fixed-4c1e", "b0304ff7a5"]
    assert (
        page.count('class="cell v-pass_by_tolerance hollow"')
        == sum(cell["hollow"] for cell in twin["rows"][0]["cells"])
        == 1
    )
    lines = list(csv.DictReader(io.StringIO(api.client.get("/matrix.csv?builds=3").text)))
    assert [(line["test"], line["build"], line["verdict"], line["seeds"]) for line in lines] == [
        (row["test"], build["name"], cell["verdict"], str(cell["seeds"]))
        for row in twin["rows"]
        for build, cell in zip(twin["builds"], row["cells"], strict=True)
        if cell
    ]
    assert 'href="/matrix" aria-current="page"' in page
    bad = api.client.get("/matrix.json?cursor=x")
    assert (bad.status_code, bad.json()["detail"]) == (
        400,
        "cursor: unknown; follow the link `next` of this list",
    )
    assert api.client.get("/matrix?cursor=x").status_code == 400
    for odd in (
        "builds=-1",
        "builds=999999",
        "limit=x",
        "verdict=%22",
        "branch=%22%27",
        "until=zz",
        "board=%F0%9F%92%A9",
    ):
        assert api.client.get(f"/matrix?{odd}").status_code == 200
    assert "Hatched below another shape" not in page  # nothing is mixed
    hollow = api.client.get(
        f"/tests/{key}?build=b0304ff7a5"
    ).text  # the banner has the looks of the worst that is known
    assert 'class="banner v-pass_by_tolerance" id="grade"' in hollow
    test, marks = (
        api.client.get(f"/tests/{key}").text,
        api.client.get(f"/tests/{key}.json").json()["strip"]["marks"],
    )
    assert "<img src=x" not in test
    assert 'id="chart-strip"' in test
    assert len(marks) == 22


def test_what_got_worse_compares_both_ends_of_a_span(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "_last", 0)  # so that ids are of the past
    now = datetime.now(UTC).replace(hour=12)

    def read(**query: str) -> worse_page.WorseView:
        with engines.reading(engine) as current:
            return worse_page.view(current, query, now)

    def day(ago: int) -> str:
        return (now - timedelta(days=ago)).date().isoformat()

    assert read().summary == "No build has run yet."
    for ago, build, wrong in ((10, "b1", False), (4, "b2", True), (0, "b3", True)):
        with (
            time_machine.travel(now - timedelta(days=ago), tick=False),
            engines.session(engine) as current,
        ):
            nightly_history.night(current, build, 20 - ago, range(3), wrong=wrong)
    view = read(since=day(5))
    assert (view.branch, view.tests, view.counts["worse"]) == ("main", 1, 1)
    [line] = view.items
    assert (line.before and line.before.build, line.after.build) == ("b1", "b3")
    assert (line.before and line.before.verdict, line.after.hollow) == ("pass", True)
    assert line.compare_url == "/compare?base=b1&head=b3"
    assert read(since=day(2)).counts["same"] == 1  # hollow before, hollow now
    assert read(since=day(8), until=day(6)).tests == 0
    assert read(since=day(20)).counts["new"] == 1
    for nonsense in ("nonsense", "0001-01-01", "9999-12-31"):
        assert read(since=nonsense, until=nonsense).since == day(7)
    with engines.reading(engine) as current:
        picks = compare_page.view(current, "", "", 50, now).picks
    assert [(pick.name, pick.branch) for pick in picks] == [
        (build, "main") for build in ("b3", "b2", "b1")
    ]
