"""Suspect seeds in the database alone: what they add to their job, and what all seeds say together.
On both databases where their SQL may differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from database_params import BOTH_ENGINES
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import SuspectSeeds
from job_flow import empty_row, output, row
from stored_flow import Flow

RANGE = {"seeds": {"start": 0, "count": 4}}
LAST = 2**53 - 1
"""The largest seed."""
Make = Callable[[int], dict[str, Any]]


def seed(number: int, distance: float, verdict: str | None = None) -> dict[str, Any]:
    """A row whose dx has this distance: explained up to 8, else suspect."""
    explanation = "explained" if distance <= 8 else "suspect"
    row_verdict = verdict or ("pass" if distance <= 8 else "suspect")
    dx = output(row_verdict, explanation, distance=distance, count=4096)
    return row(number, 0, row_verdict, explanation, outputs={"dx": dx, "dgamma": output()})


def suspects_among(*suspects: int, edge: float = 12.0, distance: float = 1.0) -> Make:
    """Rows of which these are suspect, by the distance `edge`; the others have `distance`."""
    return lambda number: seed(number, edge if number in suspects else distance)


def with_factor(number: int, estimate: float, verdict: str = "pass") -> dict[str, Any]:
    """A row that rounding explains, and whose rstd has a factor that a seed alone can't show."""
    factor = {"source": "rstd", "estimate": estimate, "deviation": 2e-7, "is_certain": False}
    dx = output(verdict, "explained", common=[{**factor, "limit": 2.0**-22}])
    return row(number, 0, verdict, "explained", outputs={"dx": dx, "dgamma": output()})


def run(flow: Flow, make: Make, seeds: Any = 4, **changes: Any) -> JobRow:
    """Run a job from its creation to its end; each last message overtakes its rows."""
    job = flow.submit(seeds, **{"request": RANGE, **changes})
    while not job.state.final:
        (item,) = flow.send(1)
        flow.finish(item, batches=1)
        for _ in range(2):
            flow.store(item, *(make(number) for number, _ in item.work))
    return job


def suspects_of(job: JobRow) -> SuspectSeeds:
    assert job.suspects is not None
    return job.suspects


def flags_of(flow: Flow, job: JobRow) -> tuple[FlagRow, ...]:
    return tuple(FLAGS.page(flow.session, job=job.id).items)


@BOTH_ENGINES
def test_a_suspect_seed_adds_eight_twice_and_stays_suspect_alone(flow: Flow) -> None:
    job = run(flow, suspects_among(3))
    counts = {"pass": 19, "suspect": 1}
    assert (job.state, job.verdict, job.counts) == ("finished", "suspect", counts)
    assert (job.total, job.done, job.chunks.total) == (20, 20, 5)
    suspects = suspects_of(job)
    assert (suspects.seeds, suspects.added, suspects.rounds) == ([3], list(range(4, 20)), 2)
    assert suspects.explanation == "suspect"
    words = "seed 3 is suspect; 16 seeds were added: together they are still at the edge"
    assert suspects.words.startswith(words)
    assert suspects.pooled is not None
    pooled = {name: entry.explanation for name, entry in suspects.pooled.items()}
    assert pooled == {"dgamma": "explained", "dx": "suspect"}
    data = [event.data for event in flow.events(job)]
    changes = [(one["state"], one["reason"]) for one in data if "reason" in one]
    assert changes == [("running", "8 seeds added: seed 3 is suspect")] * 2
    assert [one["total"] for one in data if "total" in one] == [4, 12, 12, 12, 20, 20, 20]
    assert flags_of(flow, job) == ()
    again = jobs.create(flow.session, jobs.again(flow.session, job, owner="me"))
    assert again.total == 4


@BOTH_ENGINES
def test_two_suspect_seeds_are_no_chance_and_the_flags_evidence(flow: Flow) -> None:
    job = run(flow, suspects_among(1, 5))
    assert (job.verdict, job.counts) == ("pass_by_tolerance", {"pass": 10, "suspect": 2})
    assert suspects_of(job).explanation == "unexplained"
    assert suspects_of(job).words == (
        "seeds 1, 5 are suspect; 8 seeds were added; dx: suspect in 2 of 12 seeds: together that is"
        " no chance"
    )
    (flag,) = flags_of(flow, job)
    evidence = flag.evidence
    assert flag.kind == "passes_by_tolerance"
    assert (evidence["output"], evidence["seed"], evidence["seeds"]) == ("dx", 1, 2)
    assert evidence["suspects"]["added"] == list(range(4, 12))
    assert evidence["pooled"]["dx"]["seeds"] == 12
    assert "--seeds 1 --seed-start 1" in evidence["check"]


@BOTH_ENGINES
def test_seeds_that_rounding_explains_each_show_a_factor_together(flow: Flow) -> None:
    job = run(flow, lambda number: with_factor(number, 8e-7))
    assert (job.verdict, job.counts, job.total) == ("pass_by_tolerance", {"pass": 4}, 4)
    words = "no seed is suspect by itself; dx: rstd has a factor of 1 +8e-07 over 4 seeds"
    assert suspects_of(job).words == words
    (flag,) = flags_of(flow, job)
    assert (flag.kind, flag.evidence["seeds"]) == ("passes_by_tolerance", 0)
    (factor,) = flag.evidence["pooled"]["dx"]["factors"]
    assert (factor["estimate"], factor["deviation"]) == (pytest.approx(8e-7), pytest.approx(1e-7))
    assert "--seeds 4 --seed-start 0" in flag.evidence["check"]


@pytest.mark.parametrize("estimates", [(2e-7,) * 4, (8e-7, -8e-7, 8e-7, -8e-7)])
def test_small_or_scattered_factors_change_nothing(
    flow: Flow, estimates: tuple[float, ...]
) -> None:
    job = run(flow, lambda number: with_factor(number, estimates[number]))
    assert (job.verdict, job.suspects) == ("pass", None)


def test_a_factor_of_many_seeds_makes_a_red_one_fail(flow: Flow) -> None:
    verdicts = ("fail_by_tolerance", "pass", "pass", "pass")
    assert run(flow, lambda number: with_factor(number, 8e-7, verdicts[number])).verdict == "fail"


def test_an_added_seed_that_is_unexplained_settles_it(flow: Flow) -> None:
    wrong, others = row(6, 0, "pass_by_tolerance", "unexplained"), suspects_among(0)
    job = run(flow, lambda number: wrong if number == 6 else others(number))
    assert (job.verdict, job.total) == ("pass_by_tolerance", 12)
    words = "seed 0 is suspect; 8 seeds were added: seed 6 is unexplained by itself"
    assert suspects_of(job).words == words
    assert [flag.kind for flag in flags_of(flow, job)] == ["passes_by_tolerance"]


def test_red_suspect_seeds_that_are_no_chance_stay_red_without_a_flag(flow: Flow) -> None:
    job = run(flow, lambda number: seed(number, 12.0, "fail"), 10)
    assert (job.verdict, job.total, suspects_of(job).explanation) == ("fail", 10, "unexplained")
    words = "seeds 0, 1, 2, 3, 4, 5, 6, 7 and 2 more are suspect; dx: suspect in 10 of 10 seeds"
    assert suspects_of(job).words.startswith(words)
    assert flags_of(flow, job) == ()


@pytest.mark.parametrize(
    "changes",
    [{"request": {}}, {"reference": "correct"}, {"kernel": "selection"}],
    ids=["list", "reference", "selection"],
)
@pytest.mark.parametrize(
    ("edge", "distance", "remedy"),
    [
        # evidence 1.5 and .5 three times: mean .75, deviation .5, so (2 x .5 / .25)^2 = 16 seeds
        (12.0, 4.0, "about 12 more seeds would decide"),
        (12.0, 20 / 3, "more than 1,000 more seeds would decide"),  # the mean is 1
        (8.5, 0.1, "the seeds agree, so more of them would not decide; exact inputs would"),
    ],
)
def test_a_job_that_gets_no_more_seeds_says_how_many_would_decide(
    flow: Flow, changes: dict[str, Any], edge: float, distance: float, remedy: str
) -> None:
    job = run(flow, suspects_among(1, edge=edge, distance=distance), **changes)
    assert (job.verdict, job.total, suspects_of(job).added) == ("suspect", 4, [])
    words = "seed 1 is suspect: rounding is at its edge, which is no finding, and no all-clear"
    assert suspects_of(job).words == f"{words}; {remedy}"


def test_sequential_seeds_that_decide_nothing_get_more(flow: Flow) -> None:
    request = {"seeds": {"policy": "sequential"}}
    make = suspects_among(1, distance=4.0)
    job = run(flow, make, request=request, stop_on_finding=True)
    assert job.stop is not None
    assert (job.stop.decision, job.stop.seeds_run) == ("undecided", 4)
    assert (job.verdict, job.total) == ("suspect", 20)


def test_seeds_without_numbers_end_it(flow: Flow) -> None:
    make = suspects_among(0)
    job = run(flow, lambda n: empty_row(n, "hang", "no answer") if n > 3 else make(n))
    assert (job.verdict, job.total) == ("hang", 12)
    assert (suspects_of(job).rounds, suspects_of(job).explanation) == (1, "suspect")


@BOTH_ENGINES
@pytest.mark.parametrize(
    ("last", "added"),
    [
        (LAST, [*range(LAST - 11, LAST - 3), *range(LAST - 19, LAST - 11)]),
        (LAST - 8, [*range(LAST - 7, LAST + 1), *range(LAST - 19, LAST - 11)]),
    ],
    ids=["none after", "eight after"],
)
def test_at_the_end_of_the_numbers_the_seeds_before_are_taken(
    flow: Flow, last: int, added: list[int]
) -> None:
    job = run(flow, suspects_among(last), tuple(range(last - 3, last + 1)))
    assert suspects_of(job).added == added


def test_the_flag_shows_an_output_that_the_seeds_leave_unexplained(flow: Flow) -> None:
    suspect = ("suspect", "suspect")
    outputs = {"dbeta": output(), "dgamma": output(*suspect, distance=12.0), "dx": output()}
    job = run(flow, lambda number: row(number, 0, *suspect, outputs=outputs))
    (flag,) = flags_of(flow, job)
    assert flag.evidence["output"] == "dgamma"


def test_a_red_seed_that_is_inconclusive_stays_so(flow: Flow) -> None:
    odd = row(0, 0, "inconclusive", "inconclusive")
    odd["outputs"] = {"dx": odd["outputs"]["dx"]}
    job = run(flow, lambda number: seed(number, 1.0) if number else odd)
    assert (job.verdict, job.counts) == ("inconclusive", {"inconclusive": 1, "pass": 3})
