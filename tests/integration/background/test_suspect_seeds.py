"""Suspect seeds in the database alone: what they add to their job, and what all seeds say together.
On both databases where their SQL may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import migrated_database
import unchecked
from database_params import BOTH_ENGINES
from gonogo_service.flags.api import FLAGS
from gonogo_service.jobs import chunks, dispatching, events
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from handed_out import hand_out
from job_flow import QUEUE, empty_row, new_job, output, row

NOW = utcnow()
RANGE = {"seeds": {"start": 0, "count": 4}}


@pytest.fixture(scope="module")
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A migrated database."""
    yield from migrated_database.migrated(request, tmp_path_factory)


@pytest.fixture
def current(engine: Engine) -> Iterator[Session]:
    """One write transaction, rolled back."""
    with migrated_database.back(engine) as transaction:
        yield transaction


def seed(number: int, distance: float, verdict: str | None = None) -> dict[str, Any]:
    """A row whose dx has this distance: explained up to 8, else suspect."""
    explanation = "explained" if distance <= 8 else "suspect"
    row_verdict = verdict or ("pass" if distance <= 8 else "suspect")
    dx = output(row_verdict, explanation, distance=distance, count=4096)
    return row(number, 0, row_verdict, explanation, outputs={"dx": dx, "dgamma": output()})


def with_factor(number: int, estimate: float, verdict: str = "pass") -> dict[str, Any]:
    """A row that rounding explains, and whose rstd has a factor that a seed alone can't show."""
    factor = {"source": "rstd", "estimate": estimate, "deviation": 2e-7, "is_certain": False}
    dx = output(verdict, "explained", common=[{**factor, "limit": 2.0**-22}])
    return row(number, 0, verdict, "explained", outputs={"dx": dx, "dgamma": output()})


def run(current: Session, make: Callable[[int], dict[str, Any]], **changes: Any) -> JobRow:
    """Run a job, by default of four seeds, from its creation to its end."""
    job = jobs.create(current, new_job(**{"request": RANGE, **changes}), now=NOW)
    while True:
        dispatching.dispatch(current, chunks.choose(current, QUEUE, 1), now=NOW)
        (item,) = hand_out(current, now=NOW)
        unchecked.started(current, item.attempt, {"worker": "w"}, now=NOW)
        unchecked.finished(
            current, item.attempt, {"outcome": "done", "sent": item.work, "batches": 1}, now=NOW
        )  # it overtakes its rows
        for _ in range(2):
            unchecked.store(
                current,
                item.attempt,
                {"batch": 0, "rows": [make(number) for number, _ in item.work]},
                now=NOW,
            )
        stored_job = jobs.get(current, job.id)
        assert stored_job is not None
        if stored_job.state.final:
            return stored_job


@BOTH_ENGINES
def test_a_suspect_seed_adds_eight_twice_and_stays_suspect_alone(current: Session) -> None:
    job = run(current, lambda number: seed(number, 12.0 if number == 3 else 1.0))
    counts = {"pass": 19, "suspect": 1}
    assert (job.state, job.verdict, job.counts) == ("finished", "suspect", counts)
    assert (job.total, job.done, job.chunks.total) == (20, 20, 5)
    assert job.suspects is not None
    assert (job.suspects.seeds, job.suspects.added, job.suspects.rounds) == (
        [3],
        list(range(4, 20)),
        2,
    )
    assert job.suspects.explanation == "suspect"
    assert job.suspects.words.startswith(
        "seed 3 is suspect; 16 seeds were added: together they are still at the edge"
    )
    assert job.suspects.pooled is not None
    pooled = {name: entry.explanation for name, entry in job.suspects.pooled.items()}
    assert pooled == {"dgamma": "explained", "dx": "suspect"}
    changes = [event.data for event in events.after(current, job.id, 0) if "reason" in event.data]
    assert [(change["state"], change["reason"]) for change in changes] == [
        ("running", "8 seeds added: seed 3 is suspect")
    ] * 2
    assert [
        event.data["total"]
        for event in events.after(current, job.id, 0)
        if event.type == "progress"
    ] == [4, 12, 12, 12, 20, 20, 20]
    assert FLAGS.page(current, job=job.id).items == ()
    again = jobs.resubmit(current, job.id, owner="me")
    assert again is not None
    assert again.total == 4


@BOTH_ENGINES
def test_two_suspect_seeds_are_no_chance_and_the_flags_evidence(current: Session) -> None:
    job = run(current, lambda number: seed(number, 12.0 if number in (1, 5) else 1.0))
    assert (job.verdict, job.counts) == ("pass_by_tolerance", {"pass": 10, "suspect": 2})
    assert job.suspects is not None
    assert job.suspects.explanation == "unexplained"
    words = (
        "seeds 1, 5 are suspect; 8 seeds were added; dx: suspect in 2 of 12 seeds: together that is"
        " no chance"
    )
    assert job.suspects.words == words
    (flag,) = FLAGS.page(current, job=job.id).items
    assert flag.kind == "passes_by_tolerance"
    evidence = flag.evidence
    assert (evidence["output"], evidence["seed"], evidence["seeds"]) == ("dx", 1, 2)
    assert evidence["suspects"]["added"] == list(range(4, 12))
    assert evidence["pooled"]["dx"]["seeds"] == 12
    assert "--seeds 1 --seed-start 1" in evidence["check"]


@BOTH_ENGINES
def test_seeds_that_rounding_explains_each_show_a_factor_together(current: Session) -> None:
    job = run(current, lambda number: with_factor(number, 8e-7))
    assert (job.verdict, job.counts, job.total) == ("pass_by_tolerance", {"pass": 4}, 4)
    assert job.suspects is not None
    assert job.suspects.words == (
        "no seed is suspect by itself; dx: rstd has a factor of 1 +8e-07 over 4 seeds"
    )
    (flag,) = FLAGS.page(current, job=job.id).items
    assert (flag.kind, flag.evidence["seeds"]) == ("passes_by_tolerance", 0)
    (factor,) = flag.evidence["pooled"]["dx"]["factors"]
    assert (factor["estimate"], factor["deviation"]) == (pytest.approx(8e-7), pytest.approx(1e-7))
    assert "--seeds 4 --seed-start 0" in flag.evidence["check"]


def test_small_or_scattered_factors_change_nothing(current: Session) -> None:
    for estimates in ((2e-7,) * 4, (8e-7, -8e-7, 8e-7, -8e-7)):
        job = run(current, lambda number, of=estimates: with_factor(number, of[number]))
        assert (job.verdict, job.suspects) == ("pass", None)


def test_a_factor_of_many_seeds_makes_a_red_one_fail(current: Session) -> None:
    def make(number: int) -> dict[str, Any]:
        return with_factor(number, 8e-7, "pass" if number else "fail_by_tolerance")

    assert run(current, make).verdict == "fail"


def test_an_added_seed_that_is_unexplained_settles_it(current: Session) -> None:
    wrong = row(6, 0, "pass_by_tolerance", "unexplained")
    job = run(
        current, lambda number: wrong if number == 6 else seed(number, 12.0 if number == 0 else 1.0)
    )
    assert (job.verdict, job.total) == ("pass_by_tolerance", 12)
    assert job.suspects is not None
    assert (
        job.suspects.words
        == "seed 0 is suspect; 8 seeds were added: seed 6 is unexplained by itself"
    )
    assert [flag.kind for flag in FLAGS.page(current, job=job.id).items] == ["passes_by_tolerance"]


def test_red_suspect_seeds_that_are_no_chance_stay_red_without_a_flag(current: Session) -> None:
    job = run(current, lambda number: seed(number, 12.0, "fail"))
    assert (job.verdict, job.total, job.suspects and job.suspects.explanation) == (
        "fail",
        4,
        "unexplained",
    )
    assert FLAGS.page(current, job=job.id).items == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"request": {}},
        {"reference": "correct"},
        {"kernel": "selection"},
        {"request": {"seeds": {"policy": "sequential"}}, "stop_on_finding": True},
    ],
    ids=["list", "reference", "selection", "sequential"],
)
def test_who_gets_more_seeds(current: Session, changes: dict[str, Any]) -> None:
    job = run(current, lambda number: seed(number, 12.0 if number == 1 else 4.0), **changes)
    if "stop_on_finding" in changes:
        assert job.stop is not None
        assert (job.verdict, job.total, job.stop.decision, job.stop.seeds_run) == (
            "suspect",
            20,
            "undecided",
            4,
        )
    else:
        assert job.suspects is not None
        assert (job.verdict, job.total, job.suspects.added) == ("suspect", 4, [])
        # evidence 1.5 and .5 three times: mean .75, deviation .5, so (2 x .5 / .25)^2 = 16 seeds
        assert job.suspects.words == (
            "seed 1 is suspect: rounding is at its edge, which is no finding, and no all-clear;"
            " about 12 more seeds would decide"
        )


def test_seeds_without_numbers_end_it(current: Session) -> None:
    def make(number: int) -> dict[str, Any]:
        if number > 3:
            return empty_row(number, "hang", "no answer")
        return seed(number, 12.0 if number == 0 else 1.0)

    job = run(current, make)
    assert (job.verdict, job.total) == ("hang", 12)
    assert job.suspects is not None
    assert (job.suspects.rounds, job.suspects.explanation) == (1, "suspect")


@BOTH_ENGINES
def test_at_the_end_of_the_numbers_the_seeds_before_are_taken(current: Session) -> None:
    last = 2**53 - 1
    seeds = tuple(range(last - 3, last + 1))
    job = run(current, lambda number: seed(number, 12.0 if number == last else 1.0), seeds=seeds)
    assert job.suspects is not None
    first, second = range(last - 11, last - 3), range(last - 19, last - 11)
    assert job.suspects.added == [*first, *second]


def test_the_last_number_is_a_seed_too(current: Session) -> None:
    last = 2**53 - 1 - 8
    seeds = tuple(range(last - 3, last + 1))
    job = run(current, lambda number: seed(number, 12.0 if number == last else 1.0), seeds=seeds)
    assert job.suspects is not None
    after, before = range(last + 1, last + 9), range(last - 11, last - 3)
    assert job.suspects.added == [*after, *before]


def test_the_flag_shows_an_output_that_the_seeds_leave_unexplained(current: Session) -> None:
    def make(number: int) -> dict[str, Any]:
        suspect = ("suspect", "suspect")
        judged = {"dbeta": output(), "dgamma": output(*suspect, distance=12.0), "dx": output()}
        return row(number, 0, *suspect, outputs=judged)

    job = run(current, make)
    (flag,) = FLAGS.page(current, job=job.id).items
    assert flag.evidence["output"] == "dgamma"


def test_a_red_seed_that_is_inconclusive_stays_so(current: Session) -> None:
    def make(number: int) -> dict[str, Any]:
        if number == 0:
            dx = output("inconclusive", "inconclusive")
            return row(0, 0, "inconclusive", "inconclusive", outputs={"dx": dx})
        return seed(number, 1.0)

    job = run(current, make)
    assert (job.verdict, job.counts) == ("inconclusive", {"inconclusive": 1, "pass": 3})
