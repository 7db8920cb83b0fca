"""Assessments of variants: stored once whoever dies or runs beside, with defined answers for
strange histories."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from sqlalchemy import delete, update

import stored_jobs
from gonogo.flakiness.rates import rate
from gonogo_service.background import assess
from gonogo_service.background.assess import Assessor
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAGS
from gonogo_service.gauges import store as gauges
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database import ids
from gonogo_service.kit.outbox import outbox
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.results.model import ResultRow
from gonogo_service.tests import assessing, assessments, samples, trends
from gonogo_service.tests.assessing import Assessment
from gonogo_service.tests.assessments import ASSESS, request_assessment
from gonogo_service.tests.model import AssessmentRow
from stored_histories import World, row, spec_of, variant, world

Rows = list[dict[str, Any]]
STATISTICS = ("tolerance_ratio", "rms", "rounding_ratio", "max_abs", "pcc_deficit")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One database for the tests that have a variant of their own."""
    folder = tmp_path_factory.mktemp("assessments")
    with world(f"sqlite:///{folder / 'gonogo.sqlite'}") as sqlite_world:
        yield sqlite_world


def stored(here: World, test: dict[str, Any] = stored_jobs.NIGHTLY) -> AssessmentRow:
    with engines.reading(here.engine) as session:
        assessment = assessments.get(session, variant(test))
    assert assessment is not None
    return assessment


def assessed(here: World, job: JobRow) -> Assessment:
    """Assess a job without storing it."""
    with engines.reading(here.engine) as session:
        assessment = assessing.assess(session, job.id)
    assert assessment is not None
    return assessment


def with_numbers(seed_row: dict[str, Any], **statistics: Any) -> dict[str, Any]:
    """Return the row with these statistics in each output."""
    for output in seed_row["outputs"].values():
        output.update(statistics)
    return seed_row


def _die(*_arguments: object, **_options: object) -> None:
    raise KeyboardInterrupt


def test_each_closed_job_is_assessed_once_whoever_dies_or_runs_beside(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(database_url) as here:
        job = here.job([row(seed, wrong=True, within=seed > 0) for seed in range(4)], assess=False)
        with engines.reading(here.engine) as session:
            (message,) = outbox.due(session, topics=(ASSESS,))
            assert message.payload == {"job": job.id}
            # another copy of the background, which has computed the same and is about to write it
            other = Assessor(here.core)._conclude(session, job.id)
        assert other is not None
        with monkeypatch.context() as patch:  # killed in the middle of the write: nothing stays
            patch.setattr(flags, "upsert", _die)
            with pytest.raises(KeyboardInterrupt):
                here.assessor.run_once()
        with engines.reading(here.engine) as session:
            assert assessments.get(session, variant()) is None
            (raised,) = FLAGS.page(session).items  # by ingest
            assert raised.kind == "passes_by_tolerance"
        assert here.assess() == 1
        names = ("assessment", "raised", "quiet")
        conclusion = dict(zip(names, other, strict=True))
        with engines.session(here.engine) as session:
            write = partial(
                assessments.conclude, session, **conclusion, now=datetime.now(UTC)
            )  # the other copy comes too late, and even where nothing tells, a job counts once
            assert [write(message_id=message.id), write()] == [False, True]
        assert here.flags()["flaky"].jobs == 1
        assessment = stored(here)
        assert (assessment.job_id, assessment.stability) == (job.id, "flaky")
        assert (assessment.sharpness, assessment.failures) == ("unmeasured", 1)
        assert assessment.runs == 4
        assert assessment.content["attribution"]["failures"] == asdict(rate(1, 4))
        with engines.reading(here.engine) as session:
            assert outbox.due(session, topics=(ASSESS,)) == []


def test_an_assessment_that_fails_comes_back_later_and_stalls_no_other(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shared.job([row(0)], test=spec_of(0.31), assess=False)
    shared.job([row(0)], test=spec_of(0.32), assess=False)
    real_assess = assessing.assess

    def assess_or_fail(session: Any, job_id: str, **options: Any) -> Any:
        if job_id == first.id:
            raise ValueError("a bug")
        return real_assess(session, job_id, **options)

    monkeypatch.setattr(assessing, "assess", assess_or_fail)
    # a busy machine takes seconds to write the traceback, and a pass would end by its time
    monkeypatch.setattr(assess, "PASS_S", math.inf)
    assert shared.assess() == 1
    later = datetime.now(UTC) + timedelta(seconds=6)
    with engines.reading(shared.engine) as session:
        assert outbox.due(session, topics=(ASSESS,)) == []
        (late,) = outbox.due(session, topics=(ASSESS,), now=later)
    assert (late.payload["job"], late.tries) == (first.id, 1)


def test_the_row_tells_of_the_newest_build_and_a_sick_device_raises_no_flag(shared: World) -> None:
    test, sick = spec_of(0.33), "lab-1/wormhole:0"
    new: Any = {"test": test, "sequence": 7, "build": "new"}
    with engines.session(shared.engine) as session:
        stored_jobs.device(session)  # it is bad
    shared.job([row(seed, device="lab-1/wormhole:1") for seed in range(20)], **new)
    ill = [row(seed, device=sick, wrong=True, within=seed > 9) for seed in range(20)]
    shared.job(ill, **new)
    assert shared.flags(test) == {}
    assessment = stored(shared, test)
    assert (assessment.stability, assessment.failures, assessment.runs) == ("robust", 0, 20)
    assert assessment.content["left_out"] == {sick: {"runs": 20, "words": "bad: no answer"}}
    shared.job([row(seed, within=False) for seed in range(4)], test=test, sequence=3, build="old")
    assessment = stored(shared, test)
    assert (assessment.build, assessment.stability) == ("new", "robust")
    points = {point["name"]: point for point in assessment.content["trends"]["builds"]["points"]}
    failures = points["old"]["failures"]
    assert (failures["failures"], failures["runs"]) == (4, 4)
    assert shared.flags(test)["tolerance_too_tight"].build == "old"


def test_seeds_of_equal_builds_are_pooled_and_the_same_bits_count_once(shared: World) -> None:
    test = spec_of(0.34)

    def night(number: int, seeds: range) -> AssessmentRow:
        rows = [row(seed) for seed in seeds]
        shared.job(rows, test=test, sequence=number, build=f"night{number}")
        return stored(shared, test)

    for number in range(4):  # eight seeds a night, the same bits for ever
        assessment = night(number, range(8))
    assert assessment.content["era"] == ["night2", "night1", "night0"]
    assert (assessment.stability, assessment.change) == ("unknown", "unchanged")
    assert "not enough seeds: 8 of 20" in assessment.content["grade"]["words"]
    for number in range(4, 7):  # other seeds each night
        assessment = night(number, range(8 * number, 8 * number + 8))
    assert (assessment.stability, assessment.change) == ("robust", "right")
    assert assessment.content["grade"]["failures"]["runs"] == 32


def test_the_same_seeds_every_night_foretell_nothing_of_others_whatever_their_bits(
    shared: World,
) -> None:
    """A right kernel at a quarter of its tolerance: four seeds, six nights, whose builds have bits
    of their own."""
    test, ratios = spec_of(0.361), (0.1, 0.15, 0.2, 0.27)
    for night in range(6):
        rows = [row(seed, bits=str(night)) for seed in range(4)]
        rows = [with_numbers(rows[k], tolerance_ratio=ratio) for k, ratio in enumerate(ratios)]
        job = shared.job(rows, test=test, sequence=night, build=f"night{night}", assess=False)
    assessment = assessed(shared, job)
    grade = assessment.grade
    assert len(assessment.era) == 5
    assert grade.tail is not None
    assert (grade.stability, grade.latent, grade.tail.predicted) == ("unknown", False, None)
    assert "4 distinct seeds are too few to predict how often others fail" in grade.words
    assert (assessment.attribution.failures.runs, grade.failures.runs) == (4, 4)


def test_of_seeds_that_give_bits_of_an_older_build_again_these_are_the_newest_numbers(
    shared: World,
) -> None:
    test = spec_of(0.362)
    for number, bits in enumerate(("a", "b", "a")):
        factor = 1.01 if bits == "b" else 1.0
        ratios = [(0.2 + 0.01 * seed) * factor for seed in range(20)]
        rows = [with_numbers(row(k, bits=bits), tolerance_ratio=r) for k, r in enumerate(ratios)]
        job = shared.job(rows, test=test, sequence=number, build=f"build{number}", assess=False)
    tail = assessed(shared, job).grade.tail
    assert tail is not None
    assert (tail.seeds, tail.repeated, tail.largest) == (20, 40, pytest.approx(0.39))


def test_a_point_of_a_series_has_each_seed_once_where_it_repeats_its_bits(shared: World) -> None:
    test = spec_of(0.371)
    for build, bits in ((1, ""), (1, ""), (2, "0"), (2, "1")):
        rows = [row(seed, bits=bits) for seed in range(4)]
        shared.job(rows, test=test, build=f"b{build}", sequence=build, assess=False)
    with engines.reading(shared.engine) as session:
        steady, other = trends.read(session, variant(test), metric="tolerance_ratio").points
    assert (steady.numbers["dx"].seeds, steady.failures.runs) == (4, 8)
    assert other.numbers["dx"].seeds == 8


def test_sharpness_comes_from_the_gauge(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    test = spec_of(0.35)
    job = shared.job([row(seed) for seed in range(4)], test=test)
    assert stored(shared, test).sharpness == "unmeasured"
    with engines.session(shared.engine) as session:
        ask = partial(request_assessment, session, now=datetime.now(UTC))
        answers = [ask(variant(one), "gauge:1") for one in (test, test, spec_of(0.9))]
    assert answers == [True, True, False]
    # messages of the tests before may have become due meanwhile
    with engines.reading(shared.engine) as session:
        requests = outbox.due(session, topics=(ASSESS,))
    assert [message.payload for message in requests].count({"job": job.id}) == 1
    noticed = {variant(test).test_key: {"double-subtract": rate(0, 9)}}
    monkeypatch.setattr(gauges, "misses", lambda _session, key, *_place: noticed.get(key, {}))
    shared.assess()
    assert stored(shared, test).sharpness == "sharp"


def iteration(number: int, outcome: str) -> dict[str, Any]:
    """An iteration of a gtest without arrays."""
    not_judged = {"explanation": "not_judged"}
    entry = {"verdict": "not_judged", **not_judged, "outcome": outcome}
    lost = stored_jobs.unwell(number, "not_judged", "")
    return {**lost, **not_judged, "outputs": {"Norm.Backward": entry}}


def test_iterations_of_a_gtest_are_judged_by_their_own_color_and_have_no_seed(
    shared: World,
) -> None:
    test = {"selection": {"suite": "ops", "filter": "Norm.*"}}
    outcomes = ["failed" if number == 2 else "passed" for number in range(8)]
    shared.job([iteration(number, outcome) for number, outcome in enumerate(outcomes)], test=test)
    with engines.reading(shared.engine) as session:
        of_iterations = samples.of_runs(samples.read(session, variant(test)).runs)
    assert {(sample.seed, sample.digest) for sample in of_iterations} == {(None, None)}
    assessment = stored(shared, test)
    assert (assessment.stability, assessment.failures, assessment.runs) == ("flaky", 1, 8)
    check = shared.flags(test)["flaky"].evidence["check"]
    assert "--suite ops --filter 'Norm.*' --seeds 1 --seed-start 2" in check
    for number in range(2):
        rows = [iteration(place, "passed") for place in range(40)]
        shared.job(rows, test=test, build=f"later{number}", sequence=5 + number)
    assert shared.flags(test)["flaky"].state == "resolved"


def test_jobs_of_a_version_that_assessed_nothing_are_assessed_once(database_url: str) -> None:
    with world(database_url) as here:
        here.job([row(seed) for seed in range(4)], assess=False)
        newer = here.job([row(seed) for seed in range(4, 8)], assess=False)
        with engines.session(here.engine) as session:
            session.execute(delete(OutboxRow))
        assert [Assessor(here.core).run_once() for _ in range(2)] == [1, 0]
        assert (stored(here).job_id, stored(here).runs) == (newer.id, 8)


def test_an_infinite_error_is_beyond_every_tail_and_no_missing_number(shared: World) -> None:
    # as the comparison tells of an output of Inf
    infinite = {"tolerance_ratio": None, "nonfinite_statistics": {"tolerance_ratio": "inf"}}
    test = spec_of(0.41)
    wild = with_numbers(row(0, wrong=True), **infinite)
    shared.job([wild, *(row(seed) for seed in range(1, 24))], test=test)
    with engines.reading(shared.engine) as session:
        ratios = [run.ratio for run in samples.distinct(samples.read(session, variant(test)).runs)]
    assert ratios.count(math.inf) == 1
    assert None not in ratios


RED = {"verdict": "fail", "explanation": "unexplained"}
NAN = dict.fromkeys(STATISTICS, math.nan)
STRANGE: dict[str, tuple[Rows, str, str]] = {
    "one seed": ([row(0)], "unknown", "not enough seeds: 1 of 20"),
    "equal errors": (
        [with_numbers(row(seed), tolerance_ratio=0.5, rms=0.01) for seed in range(24)],
        *("robust", "no tail to fit (all equal, or ties only)"),
    ),
    "zeros": (
        [with_numbers(row(seed), **dict.fromkeys(STATISTICS[:4], 0.0)) for seed in range(24)],
        *("robust", "no tail to fit (all equal, or ties only)"),
    ),
    "nan": (
        [with_numbers(row(seed), **NAN, verdict="fail") | RED for seed in range(24)],
        *("broken", "24 of 24"),
    ),
    "hangs": (
        [stored_jobs.unwell(seed, "hang", "no end") for seed in range(3)],
        *("unknown", "no run was judged"),
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_history_that_says_nothing_has_a_defined_answer(shared: World, name: str) -> None:
    rows, stability, words = STRANGE[name]
    test = spec_of(0.01 * (1 + list(STRANGE).index(name)))
    for sequence in (1, 2):
        shared.job(rows, test=test, build=f"b{sequence}", sequence=sequence)
    assessment = stored(shared, test)
    assert assessment.stability == stability
    assert words in assessment.content["grade"]["words"]


def test_of_a_million_seeds_a_bounded_number_is_read_and_the_counters_tell_the_rest(
    shared: World,
) -> None:
    test = spec_of(0.37)
    job = shared.job([row(seed) for seed in range(30)], test=test, assess=False)
    # as if 999,970 others had come before those that are there
    counts = {"pass": 999_999, "fail_by_tolerance": 1}
    many = update(JobRow).where(JobRow.id == job.id).values(done=1_000_000, counts=counts)
    later = {"arrival": ResultRow.arrival + 999_970}
    with engines.session(shared.engine) as session:
        session.execute(many)
        session.execute(update(ResultRow).where(ResultRow.job_id == job.id).values(later))
    with engines.reading(shared.engine) as session:
        history = samples.read(session, variant(test), seeds=20)
    assert history.extent.words == "20 of 1000000 seeds of 1 job"
    assert [run.seed for run in history.runs] == list(range(10, 30))  # the newest
    assessment = assessed(shared, job)
    assert assessment.extent.seeds == 30
    assert assessment.grade.stability == "flaky"
    assert assessment.grade.failures == rate(1, 1_000_000)
    shared.assess()


def test_a_clock_that_goes_back_hides_no_job_and_makes_no_old_job_look_quiet(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = spec_of(0.38)
    for number in range(3):
        rows = [row(seed) for seed in range(40)]
        good = shared.job(rows, test=test, build=f"good{number}", sequence=number)
    numbers, year_ago = count(1), ids.floor(datetime(2025, 1, 1, tzinfo=UTC))[:-8]
    monkeypatch.setattr(jobs, "new_id", lambda: year_ago + f"{next(numbers):08x}")
    late: Any = {"test": test, "build": "late", "sequence": 9}
    job = shared.job([row(seed, within=seed > 0) for seed in range(8)], **late)
    assert job.id < good.id
    flag = shared.flags(test)["flaky"]
    assert (flag.state, flag.last_job) == ("open", job.id)
    for _ in range(2):
        shared.job([row(seed) for seed in range(8)], **late)
        assert shared.flags(test)["flaky"].version == flag.version
