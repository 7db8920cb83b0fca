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
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database import ids
from gonogo_service.kit.outbox import outbox
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.results.model import ResultRow
from gonogo_service.tests import assessing, assessments, samples, trends
from gonogo_service.tests.assessments import ASSESS, request_assessment
from gonogo_service.tests.model import AssessmentRow
from stored_histories import World, row, spec_of, variant, world


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One database for the tests that have a variant of their own."""
    with world(
        f"sqlite:///{tmp_path_factory.mktemp('assessments') / 'gonogo.sqlite'}"
    ) as sqlite_world:
        yield sqlite_world


def stored(here: World, test: dict[str, Any] = stored_jobs.NIGHTLY) -> AssessmentRow:
    with engines.reading(here.engine) as session:
        assessment = assessments.get(session, variant(test))
    assert assessment is not None
    return assessment


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
        with (
            monkeypatch.context() as patch
        ):  # killed in the middle of the write: nothing of it stays
            patch.setattr(flags, "upsert", _die)
            with pytest.raises(KeyboardInterrupt):
                here.assessor.run_once()
        with engines.reading(here.engine) as session:
            assert assessments.get(session, variant()) is None
            assert {flag.kind for flag in FLAGS.page(session).items} == {
                "passes_by_tolerance"
            }  # ingest raised it
        assert here.assess() == 1
        assessment, raised, quiet = other
        with engines.session(here.engine) as session:
            write = partial(
                assessments.conclude,
                assessment=assessment,
                raised=raised,
                quiet=quiet,
                now=datetime.now(UTC),
            )
            assert write(session, message_id=message.id) is False  # the other copy comes too late
            assert write(session) is True  # and even where nothing tells, the same job counts once
        assert here.flags()["flaky"].jobs == 1
        stored_assessment = stored(here)
        assert (
            stored_assessment.job_id,
            stored_assessment.stability,
            stored_assessment.sharpness,
            stored_assessment.failures,
            stored_assessment.runs,
        ) == (
            job.id,
            "flaky",
            "unmeasured",
            1,
            4,
        )
        assert stored_assessment.content["attribution"]["failures"] == asdict(rate(1, 4))
        with engines.reading(here.engine) as session:
            assert outbox.due(session, topics=(ASSESS,)) == []


def _die(*_arguments: object, **_options: object) -> None:
    raise KeyboardInterrupt


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
    with engines.reading(shared.engine) as session:
        assert outbox.due(session, topics=(ASSESS,)) == []
        (late,) = outbox.due(
            session, topics=(ASSESS,), now=datetime.now(UTC) + timedelta(seconds=6)
        )
    assert (late.payload["job"], late.tries) == (first.id, 1)


def test_the_row_tells_of_the_newest_build_and_a_sick_device_raises_no_flag(shared: World) -> None:
    test = spec_of(0.33)
    with engines.session(shared.engine) as session:
        stored_jobs.device(session)  # lab-1/wormhole:0 is bad
    shared.job(
        [row(seed, device="lab-1/wormhole:1") for seed in range(20)],
        test=test,
        sequence=7,
        build="new",
    )
    ill = [row(seed, device="lab-1/wormhole:0", wrong=True, within=seed > 9) for seed in range(20)]
    shared.job(ill, test=test, sequence=7, build="new")
    assert shared.flags(test) == {}
    assessment = stored(shared, test)
    assert (assessment.stability, assessment.failures, assessment.runs) == (
        "robust",
        0,
        20,
    )
    assert assessment.content["left_out"] == {
        "lab-1/wormhole:0": {"runs": 20, "words": "bad: no answer"}
    }
    shared.job([row(seed, within=False) for seed in range(4)], test=test, sequence=3, build="old")
    assessment = stored(shared, test)
    assert (assessment.build, assessment.stability) == ("new", "robust")
    points = {point["name"]: point for point in assessment.content["trends"]["builds"]["points"]}
    assert (points["old"]["failures"]["failures"], points["old"]["failures"]["runs"]) == (4, 4)
    assert shared.flags(test)["tolerance_too_tight"].build == "old"


def test_seeds_of_equal_builds_are_pooled_and_the_same_bits_count_once(shared: World) -> None:
    test = spec_of(0.34)
    for number in range(4):  # eight seeds a night, the same bits for ever
        shared.job(
            [row(seed) for seed in range(8)], test=test, sequence=number, build=f"night{number}"
        )
    assessment = stored(shared, test)
    assert assessment.content["era"] == ["night2", "night1", "night0"]
    assert (assessment.stability, assessment.change) == ("unknown", "unchanged")
    assert "not enough seeds: 8 of 20" in assessment.content["grade"]["words"]
    for number in range(4, 7):  # other seeds each night
        shared.job(
            [row(seed) for seed in range(8 * number, 8 * number + 8)],
            test=test,
            sequence=number,
            build=f"night{number}",
        )
    assessment = stored(shared, test)
    assert (assessment.stability, assessment.change) == ("robust", "right")
    assert assessment.content["grade"]["failures"]["runs"] == 32


def test_the_same_seeds_every_night_foretell_nothing_of_others_whatever_their_bits(
    shared: World,
) -> None:
    """A right kernel at a quarter of its tolerance: four seeds, six nights, whose builds have bits
    of their own."""
    test = spec_of(0.361)
    for night in range(6):
        rows = [row(seed, bits=str(night)) for seed in range(4)]
        for seed_row, ratio in zip(rows, (0.1, 0.15, 0.2, 0.27), strict=True):
            for output in seed_row["outputs"].values():
                output["tolerance_ratio"] = ratio
        job = shared.job(rows, test=test, sequence=night, build=f"night{night}", assess=False)
    with engines.reading(shared.engine) as session:
        assessment = assessing.assess(session, job.id)
    assert assessment is not None
    assert len(assessment.era) == 5
    assert assessment.grade.tail is not None
    assert (
        assessment.grade.stability,
        assessment.grade.latent,
        assessment.grade.tail.predicted,
    ) == (
        "unknown",
        False,
        None,
    )
    assert "4 distinct seeds are too few to predict how often others fail" in assessment.grade.words
    assert (assessment.attribution.failures.runs, assessment.grade.failures.runs) == (4, 4)


def test_of_seeds_that_give_bits_of_an_older_build_again_these_are_the_newest_numbers(
    shared: World,
) -> None:
    test = spec_of(0.362)
    for number, bits in enumerate(("a", "b", "a")):
        rows = [row(seed, bits=bits) for seed in range(20)]
        for seed, seed_row in enumerate(rows):
            for output in seed_row["outputs"].values():
                output["tolerance_ratio"] = (0.2 + 0.01 * seed) * (1.01 if bits == "b" else 1.0)
        job = shared.job(rows, test=test, sequence=number, build=f"build{number}", assess=False)
    with engines.reading(shared.engine) as session:
        assessment = assessing.assess(session, job.id)
    assert assessment is not None
    assert assessment.grade.tail is not None
    assert (assessment.grade.tail.seeds, assessment.grade.tail.repeated) == (20, 40)
    assert assessment.grade.tail.largest == pytest.approx(0.39)


def test_a_point_of_a_series_has_each_seed_once_where_it_repeats_its_bits(shared: World) -> None:
    test = spec_of(0.371)
    for _ in range(2):
        shared.job([row(seed) for seed in range(4)], test=test, assess=False)
    for night in range(2):
        shared.job(
            [row(seed, bits=str(night)) for seed in range(4)],
            test=test,
            build="b2",
            sequence=2,
            assess=False,
        )
    with engines.reading(shared.engine) as session:
        steady, other = trends.read(session, variant(test), metric="tolerance_ratio").points
    assert (steady.numbers["dx"].seeds, steady.failures.runs) == (4, 8)
    assert other.numbers["dx"].seeds == 8


def test_sharpness_comes_from_the_gauge(shared: World) -> None:
    test = spec_of(0.35)
    sharp = World(
        shared.core,
        lambda session, gauged_variant: (
            {"double-subtract": rate(0, 9)} if gauged_variant == variant(test) else {}
        ),
    )
    job = shared.job([row(seed) for seed in range(4)], test=test)
    assert stored(shared, test).sharpness == "unmeasured"
    with engines.session(shared.engine) as session:
        assert [
            request_assessment(session, variant(test), "gauge:1", now=datetime.now(UTC))
            for _ in range(2)
        ] == [True, True]
        assert not request_assessment(
            session, variant(spec_of(0.9)), "gauge:1", now=datetime.now(UTC)
        )
    # messages of the tests before may have become due meanwhile
    with engines.reading(shared.engine) as session:
        requests = outbox.due(session, topics=(ASSESS,))
    assert [message.payload for message in requests].count({"job": job.id}) == 1
    sharp.assess()
    assert stored(shared, test).sharpness == "sharp"


def test_changes_over_builds_are_found_and_named(shared: World) -> None:
    test = {**spec_of(0.36), "shape": [1, 1, 32, 352]}
    for number in range(8):
        wrong = number >= 4
        shared.job(
            [row(seed, wrong=wrong, bits=str(number)) for seed in range(8)],
            test=test,
            sequence=number,
            build=f"n{number}",
        )
    trends = stored(shared, test).content["trends"]
    (change,) = trends["builds"]["numbers"]["dx"]["changes"]
    assert change["at"] == "n4"
    assert trends["builds"]["numbers"]["dgamma"]["changes"] == []
    # green all the time: verdicts alone saw nothing
    assert trends["builds"]["rates"]["changes"] == []
    today = datetime.now(UTC).date().isoformat()
    assert [point["name"] for point in trends["days"]["points"]] == [today]


def iteration(number: int, outcome: str) -> dict[str, Any]:
    """An iteration of a gtest without arrays."""
    entry = {"verdict": "not_judged", "explanation": "not_judged", "outcome": outcome}
    return {
        **stored_jobs.unwell(number, "not_judged", ""),
        "explanation": "not_judged",
        "outputs": {"Norm.Backward": entry},
    }


def test_iterations_of_a_gtest_are_judged_by_their_own_colour_and_have_no_seed(
    shared: World,
) -> None:
    test = {"selection": {"suite": "ops", "filter": "Norm.*"}}
    shared.job(
        [iteration(number, "failed" if number == 2 else "passed") for number in range(8)], test=test
    )
    with engines.reading(shared.engine) as session:
        iteration_samples = samples.of_runs(samples.read(session, variant(test)).runs)
    assert {(sample.seed, sample.digest) for sample in iteration_samples} == {(None, None)}
    assessment = stored(shared, test)
    assert (assessment.stability, assessment.failures, assessment.runs) == ("flaky", 1, 8)
    flag = shared.flags(test)["flaky"]
    assert "--suite ops --filter 'Norm.*' --seeds 1 --seed-start 2" in flag.evidence["check"]
    for number in range(2):
        shared.job(
            [iteration(iteration_number, "passed") for iteration_number in range(40)],
            test=test,
            build=f"later{number}",
            sequence=5 + number,
        )
    assert shared.flags(test)["flaky"].state == "resolved"


def test_jobs_of_a_version_that_assessed_nothing_are_assessed_once(database_url: str) -> None:
    with world(database_url) as here:
        older = here.job([row(seed) for seed in range(4)], assess=False)
        newer = here.job([row(seed) for seed in range(4, 8)], assess=False)
        with engines.session(here.engine) as session:
            session.execute(delete(OutboxRow))
        upgraded = Assessor(here.core)
        assert upgraded.run_once() == 1
        assert (stored(here).job_id, stored(here).runs) == (newer.id, 8)
        assert older.id != newer.id
        assert Assessor(here.core).run_once() == 0


def test_an_infinite_error_is_beyond_every_tail_and_no_missing_number(shared: World) -> None:
    wild = row(0, wrong=True)
    for output in wild["outputs"].values():  # as the comparison tells of an output of Inf
        output.update(tolerance_ratio=None, nonfinite_statistics={"tolerance_ratio": "inf"})
    test = spec_of(0.41)
    shared.job([wild, *(row(seed) for seed in range(1, 24))], test=test)
    with engines.reading(shared.engine) as session:
        ratios = [run.ratio for run in samples.distinct(samples.read(session, variant(test)).runs)]
    assert sum(ratio == math.inf for ratio in ratios) == 1
    assert None not in ratios


def strange(number: int) -> list[dict[str, Any]]:
    """Return the rows of a history that says nothing: one seed, equal errors, zeros, only NaN, only
    hangs."""
    rows = [row(seed) for seed in range(1 if number == 0 else 24)]
    for seed_row in rows:
        for output in seed_row["outputs"].values():
            if number == 1:
                output.update(tolerance_ratio=0.5, rms=0.01)
            elif number == 2:
                output.update(
                    dict.fromkeys(("tolerance_ratio", "rms", "rounding_ratio", "max_abs"), 0.0)
                )
            elif number == 3:
                output.update(
                    dict.fromkeys(
                        ("tolerance_ratio", "rms", "rounding_ratio", "max_abs", "pcc_deficit"),
                        float("nan"),
                    ),
                    verdict="fail",
                )
                seed_row.update(verdict="fail", explanation="unexplained")
    return (
        [stored_jobs.unwell(seed, "hang", "no end") for seed in range(3)] if number == 4 else rows
    )


@pytest.mark.parametrize(
    ("number", "stability", "words"),
    [
        (0, "unknown", "not enough seeds: 1 of 20"),
        (1, "robust", "no tail to fit (all equal, or ties only)"),
        (2, "robust", "no tail to fit (all equal, or ties only)"),
        (3, "broken", "24 of 24"),
        (4, "unknown", "no run was judged"),
    ],
    ids=["one seed", "equal errors", "zeros", "nan", "hangs"],
)
def test_a_history_that_says_nothing_has_a_defined_answer(
    shared: World, number: int, stability: str, words: str
) -> None:
    test = spec_of(0.01 * (1 + number))
    for sequence in (1, 2):
        shared.job(strange(number), test=test, build=f"b{sequence}", sequence=sequence)
    assessment = stored(shared, test)
    assert assessment.stability == stability
    assert words in assessment.content["grade"]["words"]


def test_of_a_million_seeds_a_bounded_number_is_read_and_the_counters_tell_the_rest(
    shared: World,
) -> None:
    test = spec_of(0.37)
    job = shared.job([row(seed) for seed in range(30)], test=test, assess=False)
    with engines.session(
        shared.engine
    ) as session:  # as if 999,970 others had come before those that are there
        counts = {"pass": 999_999, "fail_by_tolerance": 1}
        session.execute(
            update(JobRow).where(JobRow.id == job.id).values(done=1_000_000, counts=counts)
        )
        shifted = ResultRow.arrival + 999_970
        session.execute(update(ResultRow).where(ResultRow.job_id == job.id).values(arrival=shifted))
    with engines.reading(shared.engine) as session:
        history = samples.read(session, variant(test), seeds=20)
        assessment = assessing.assess(session, job.id)
    assert history.extent.words == "20 of 1000000 seeds of 1 job"
    assert [run.seed for run in history.runs] == list(range(10, 30))  # the newest
    assert assessment is not None
    assert (assessment.extent.seeds, assessment.grade.stability, assessment.grade.failures) == (
        30,
        "flaky",
        rate(1, 1_000_000),
    )
    shared.assess()


def test_a_clock_that_goes_back_hides_no_job_and_makes_no_old_job_look_quiet(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = spec_of(0.38)
    for number in range(3):
        good = shared.job(
            [row(seed) for seed in range(40)], test=test, build=f"good{number}", sequence=number
        )
    numbers = count(1)
    monkeypatch.setattr(
        jobs,
        "new_id",
        lambda: ids.floor(datetime(2025, 1, 1, tzinfo=UTC))[:-8] + f"{next(numbers):08x}",
    )
    job = shared.job(
        [row(seed, within=seed > 0) for seed in range(8)], test=test, build="late", sequence=9
    )
    assert job.id < good.id
    flag = shared.flags(test)["flaky"]
    assert (flag.state, flag.last_job) == ("open", job.id)
    for _ in range(2):
        shared.job([row(seed) for seed in range(8)], test=test, build="late", sequence=9)
        assert shared.flags(test)["flaky"].version == flag.version
