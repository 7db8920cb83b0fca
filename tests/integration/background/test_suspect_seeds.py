"""Suspect seeds in the database alone: what they add to their job, and what all seeds say together.
On both databases where their SQL may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import migrated_database
from database_params import BOTH_ENGINES
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.flags import flags
from gonogo_storage.jobs import attempts, chunks, jobs
from gonogo_storage.jobs.job import Job
from gonogo_storage.messages import events
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


def seed(number: int, row_z: float, verdict: str | None = None) -> dict[str, Any]:
    """A row whose dx has this `row_z`: explained up to 4, suspect above, as the policy says."""
    explanation = "explained" if row_z <= 4 else "suspect"
    row_verdict = verdict or ("pass" if row_z <= 4 else "suspect")
    statistics = {"budget_ratio": 0.9, "chi": 1.0, "count": 4096}
    dx = output(row_verdict, explanation, **statistics, row_z=row_z)
    return row(number, 0, row_verdict, explanation, outputs={"dx": dx, "dgamma": output()})


def run(current: Session, make: Callable[[int], dict[str, Any]], **changes: Any) -> Job:
    """Run a job, by default of four seeds, from its creation to its end."""
    job = jobs.create(current, new_job(**{"request": RANGE, **changes}), now=NOW)
    while True:
        chunks.dispatch(current, chunks.choose(current, QUEUE, 1), now=NOW)
        (item,) = attempts.unpublished(current, "epoch")
        attempts.published(current, [item.attempt], "epoch", now=NOW)
        attempts.started(current, item.attempt, {"worker": "w"}, now=NOW)
        attempts.finished(
            current, item.attempt, {"outcome": "done", "sent": item.work, "batches": 1}, now=NOW
        )  # it overtakes its rows
        for _ in range(2):
            attempts.store(
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
def test_a_suspect_seed_adds_eight_and_what_was_chance_passes(current: Session) -> None:
    job = run(current, lambda number: seed(number, 6.0 if number == 3 else 1.0))
    assert (job.state, job.verdict, job.counts) == ("finished", "pass", {"pass": 11, "suspect": 1})
    assert (job.total, job.done, job.chunks.total) == (12, 12, 3)
    assert job.suspects is not None
    assert (job.suspects.seeds, job.suspects.added, job.suspects.rounds) == (
        [3],
        list(range(4, 12)),
        1,
    )
    assert (
        job.suspects.words
        == "seed 3 is suspect; 8 seeds were added: rounding explains them together: it was chance"
    )
    assert list(job.suspects.pooled) == ["dx"]  # dgamma was never suspect
    assert job.suspects.pooled["dx"].statistics["row_z"] == pytest.approx(((36 + 11) / 12) ** 0.5)
    (state_change,) = [
        event.data for event in events.after(current, job.id, 0) if "reason" in event.data
    ]
    assert (state_change["state"], state_change["reason"]) == (
        "running",
        "8 seeds added: seed 3 is suspect",
    )
    assert [
        event.data["total"]
        for event in events.after(current, job.id, 0)
        if event.type == "progress"
    ] == [4, 12, 12, 12]
    assert flags.list_(current, job=job.id).items == ()
    again = jobs.resubmit(current, job.id, owner="me")
    assert again is not None
    assert again.total == 4


def test_what_stays_at_the_edge_adds_eight_twice_and_raises_no_flag(current: Session) -> None:
    job = run(current, lambda number: seed(number, 6.0))
    assert (job.verdict, job.counts, job.total) == ("suspect", {"suspect": 20}, 20)
    assert job.suspects is not None
    assert (job.suspects.rounds, job.suspects.explanation, len(job.suspects.added)) == (
        2,
        "suspect",
        16,
    )
    assert job.suspects.seeds == list(range(8))
    assert job.suspects.words.startswith(
        "seeds 0, 1, 2, 3, 4, 5, 6, 7 and 12 more are suspect; "
        "16 seeds were added: together they are still"
    )
    assert job.suspects.words.endswith("more of them would not decide; exact inputs would")
    assert flags.list_(current, job=job.id).items == ()


def test_an_added_seed_that_is_unexplained_settles_it(current: Session) -> None:
    wrong = row(6, 0, "pass_by_tolerance", "unexplained")
    job = run(
        current, lambda number: wrong if number == 6 else seed(number, 6.0 if number == 0 else 1.0)
    )
    assert (job.verdict, job.total) == ("pass_by_tolerance", 12)
    assert job.suspects is not None
    assert (
        job.suspects.words
        == "seed 0 is suspect; 8 seeds were added: seed 6 is unexplained by itself"
    )
    assert [flag.kind for flag in flags.list_(current, job=job.id).items] == ["passes_by_tolerance"]


@BOTH_ENGINES
@pytest.mark.parametrize(
    ("row_z", "verdict", "ends", "kind"),
    [
        (30.0, "suspect", "pass_by_tolerance", "passes_by_tolerance"),
        (30.0, "fail", "fail", None),
        (1.0, "fail", "fail_by_tolerance", "tolerance_too_tight"),
    ],
)
def test_the_pooled_figures_decide_the_verdict_and_are_the_flags_evidence(
    current: Session, row_z: float, verdict: str, ends: str, kind: str | None
) -> None:
    """An older policy called such rows suspect, for example."""

    def make(number: int) -> dict[str, Any]:
        dx = output(verdict, "suspect", budget_ratio=0.9, row_z=row_z)
        return row(number, 0, verdict, "suspect", outputs={"dx": dx})

    job = run(current, make)
    assert (job.verdict, job.total) == (ends, 12)
    job_flags = flags.list_(current, job=job.id).items
    assert [flag.kind for flag in job_flags] == ([] if kind is None else [kind])
    if kind is not None:
        evidence = job_flags[0].evidence
        assert evidence["pooled"]["dx"]["statistics"]["row_z"] == pytest.approx(row_z)
        assert (evidence["output"], evidence["seeds"], evidence["suspects"]["added"]) == (
            "dx",
            12,
            list(range(4, 12)),
        )
        assert "--seed-start 0" in evidence["check"]


def test_pooled_seeds_of_a_replay_are_the_flags_evidence_with_the_programs_name(
    current: Session,
) -> None:
    program = "bf16: rstd stored"
    rows = {"arithmetic": program, "missed": 1, "rows": 400}

    def make(number: int) -> dict[str, Any]:
        statistics = {"nearest_arithmetic": program, "arithmetic": program, "missed_rows": rows}
        dx = output("suspect", "suspect", budget_ratio=0.9, cell_max=1e3, **statistics)
        return row(number, 0, "suspect", "suspect", outputs={"dx": dx})

    job = run(current, make)
    (flag,) = flags.list_(current, job=job.id).items
    assert (job.verdict, flag.kind) == ("pass_by_tolerance", "passes_by_tolerance")
    assert job.suspects is not None
    assert job.suspects.pooled is not None
    of_dx = flag.evidence["pooled"]["dx"]
    assert of_dx["statistics"]["arithmetic"] == program
    assert of_dx["statistics"] == job.suspects.pooled["dx"].statistics


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
    job = run(current, lambda number: seed(number, 6.0 if number == 1 else 1.0), **changes)
    if "stop_on_finding" in changes:
        assert job.stop is not None
        assert (job.verdict, job.total, job.stop.decision, job.stop.seeds_run) == (
            "pass",
            12,
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
    job = run(
        current,
        lambda number: empty_row(number, "hang", "no answer") if number > 3 else seed(number, 6.0),
    )
    assert (job.verdict, job.total) == ("hang", 12)
    assert job.suspects is not None
    assert (job.suspects.rounds, job.suspects.explanation) == (1, "suspect")


@BOTH_ENGINES
def test_at_the_end_of_the_numbers_the_seeds_before_are_taken(current: Session) -> None:
    last = 2**53 - 1
    seeds = tuple(range(last - 3, last + 1))
    job = run(current, lambda number: seed(number, 6.0 if number == last else 1.0), seeds=seeds)
    assert job.suspects is not None
    assert (job.suspects.added, job.verdict) == (list(range(last - 11, last - 3)), "pass")


def test_the_last_number_is_a_seed_too(current: Session) -> None:
    last = 2**53 - 1 - 8
    seeds = tuple(range(last - 3, last + 1))
    job = run(current, lambda number: seed(number, 6.0 if number == last else 1.0), seeds=seeds)
    assert job.suspects is not None
    assert job.suspects.added == list(range(last + 1, last + 9))


def test_the_flag_shows_the_output_with_the_most_evidence(current: Session) -> None:
    def make(number: int) -> dict[str, Any]:
        judged = {
            name: output("suspect", "suspect", budget_ratio=0.9, row_z=row_z)
            for name, row_z in (("dbeta", 25.0), ("dgamma", 30.0), ("dx", 28.0))
        }
        return row(number, 0, "suspect", "suspect", outputs=judged)

    job = run(current, make)
    (flag,) = flags.list_(current, job=job.id).items
    assert flag.evidence["output"] == "dgamma"


def replayed(number: int, verdict: str, explanation: str, **statistics: Any) -> dict[str, Any]:
    """A row whose dx was replayed."""
    cells = {"cell_max": 3.0, "cell_row_max": 1.0, "nearest_arithmetic": "fp32-inside"}
    dx = output(verdict, explanation, **{"arithmetic": "fp32-inside", **cells, **statistics})
    return row(number, 0, verdict, explanation, outputs={"dx": dx})


@pytest.mark.parametrize(
    ("unseen", "ends"), [(["gamma"], "inconclusive"), ([], "fail_by_tolerance")]
)
def test_a_red_seed_is_acquitted_only_of_what_a_seed_could_have_seen(
    current: Session, unseen: list[str], ends: str
) -> None:
    def make(number: int) -> dict[str, Any]:
        if number == 0:
            return replayed(0, "inconclusive", "inconclusive", unseen_terms=["gamma", "beta"])
        return replayed(number, "pass", "explained", unseen_terms=unseen)

    job = run(current, make)
    assert (job.verdict, job.counts) == (ends, {"inconclusive": 1, "pass": 3})


def test_a_seed_without_any_information_stays_inconclusive(current: Session) -> None:
    def make(number: int) -> dict[str, Any]:
        if number == 0:
            return row(
                0,
                0,
                "inconclusive",
                "inconclusive",
                outputs={"dx": output("inconclusive", "inconclusive")},
            )
        return replayed(number, "pass", "explained", unseen_terms=[])

    assert run(current, make).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("unseen", "ends"), [(["gamma"], "inconclusive"), ([], "fail_by_tolerance")]
)
def test_a_red_suspect_seed_that_was_chance_is_acquitted_only_of_what_was_seen(
    current: Session, unseen: list[str], ends: str
) -> None:
    def make(number: int) -> dict[str, Any]:
        if number == 0:
            return replayed(0, "fail", "suspect", arithmetic=None, cell_max=12.0)
        return replayed(number, "pass", "explained", unseen_terms=unseen)

    job = run(current, make)
    assert (job.verdict, job.total) == (ends, 12)
    assert job.suspects is not None
    if unseen:
        assert job.suspects.words.endswith(
            "rounding explains them together, but no seed could have seen every term"
        )
