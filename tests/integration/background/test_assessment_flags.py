"""Each kind of flag opens on the numbers that call for it, and is over by itself after the quiet
period: a story of jobs for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stored_jobs
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests import device_times
from stored_histories import World, row, spec_of, world

LATER = datetime.now(UTC) + timedelta(days=1)
QUIET = POLICY.quiet_seeds
EVIDENCE = {
    "sentence",
    "words",
    "job",
    "build",
    "seeds",
    "of",
    "figures",
    "examples",
    "rerun",
    "check",
    "extent",
}


def opened(here: World, kind: str, test: dict[str, Any], state: str = "open") -> FlagRow:
    """Return the flag of that kind; its evidence must suffice to run it again."""
    flag = here.flags(test)[kind]
    assert flag.state == state
    assert flag.evidence.keys() >= EVIDENCE
    assert flag.evidence["check"].startswith(
        "gonogo check --kernel layernorm_bw --shape 3,273,1,8462 --build "
    )
    assert flag.evidence["rerun"]["seeds"]
    assert flag.evidence["rerun"]["builds"]
    return flag


def quiet(
    here: World, test: dict[str, Any], *, first: int = 50, repeats: int = 1, **changes: Any
) -> None:
    """Store the quiet period: explained, green seeds on later builds."""
    for number in range(POLICY.quiet_builds):
        rows = [
            row(seed, repeat=repeat, **changes)
            for seed in range(QUIET // 2)
            for repeat in range(repeats)
        ]
        here.job(rows, test=test, build=f"later{number}", sequence=first + number)


def flaky(here: World) -> None:
    test = spec_of(0.41)
    here.job([row(seed, wrong=True, within=seed != 3) for seed in range(8)], test=test)
    flag = opened(here, "flaky", test)
    proof = flag.evidence
    assert (proof["figures"]["failures"]["failures"], proof["figures"]["failures"]["runs"]) == (
        1,
        8,
    )
    assert proof["figures"]["failures"]["low"] < 1 / 8 < proof["figures"]["failures"]["high"]
    assert "--seeds 1 --seed-start 3" in proof["check"]
    here.job(
        [row(seed, wrong=True, within=True) for seed in (0, 1)], test=test
    )  # green seeds say nothing new
    assert here.flags(test)["flaky"].version == flag.version
    quiet(here, test)
    assert here.flags(test)["flaky"].state == "resolved"
    here.job([row(0, within=False), row(1)], test=test, build="worse", sequence=90)
    assert here.flags(test)["flaky"].state == "reopened"


def nondeterministic(here: World) -> None:
    test = spec_of(0.42)
    rows = [
        row(seed, repeat=repeat, bits="ab"[repeat] if seed == 2 else "")
        for seed in range(4)
        for repeat in (0, 1)
    ]
    here.job(rows, test=test)
    proof = opened(here, "nondeterministic", test).evidence
    assert (proof["figures"]["compared"]["failures"], proof["figures"]["compared"]["runs"]) == (
        1,
        4,
    )
    assert len({example["digests"]["dx"] for example in proof["examples"]}) == 2
    assert "--seed-start 2 --repeats 8" in proof["check"]
    quiet(here, test)
    assert (
        here.flags(test)["nondeterministic"].state == "open"
    )  # seeds that ran once say nothing of it
    quiet(here, test, first=60, repeats=2)
    assert here.flags(test)["nondeterministic"].state == "resolved"


def device_dependent(here: World) -> None:
    test = spec_of(0.43)
    for device in ("n1/0", "n2/0"):
        here.job([row(seed, device=device, bits=device[1]) for seed in range(4)], test=test)
    proof = opened(here, "device_dependent", test).evidence
    assert proof["rerun"]["devices"] == ["n1/0", "n2/0"]
    assert set(proof["figures"]["examples"][0]["digests"]) == {"n1/0", "n2/0"}
    for device in ("n1/0", "n2/0"):
        quiet(here, test, device=device)
    assert here.flags(test)["device_dependent"].state == "resolved"


def context_dependent(here: World) -> None:
    test = spec_of(0.44)
    grouped = {"name": "after matmul", "before": []}
    here.job([row(seed) for seed in range(8)], test=test)
    here.job(
        [row(seed, wrong=True, within=False, position=1) for seed in range(8)],
        test=test,
        context=grouped,
    )
    proof = opened(here, "context_dependent", test).evidence
    table = {
        tally["name"]: (tally["passed"], tally["failed"]) for tally in proof["figures"]["contexts"]
    }
    assert table == {"isolated": (8, 0), "after matmul": (0, 8)}
    assert proof["rerun"]["contexts"] == ["isolated", "after matmul"]
    assert here.flags(test)["flaky"].evidence["figures"]["cause"] == "context_dependent"
    for number, context in enumerate(["isolated", grouped, "isolated", grouped]):
        rows = [row(seed) for seed in range(QUIET // 2)]
        here.job(
            rows, test=test, context=context, build=f"later{number % 2}", sequence=50 + number % 2
        )
    assert here.flags(test)["context_dependent"].state == "resolved"


def latent_flake(here: World) -> None:
    test = spec_of(0.45)
    rows = [row(seed, bits="old") for seed in range(40)]
    for seed, seed_row in enumerate(rows):
        seed_row["outputs"]["dx"]["tolerance_ratio"] = 0.5 - 0.11 * math.log(
            1 - (seed + 0.5) / 40
        )  # up to .98; of 1,000 seeds 11 fail
    here.job(rows, test=test)
    proof = opened(here, "latent_flake", test).evidence
    tail = proof["figures"]["tail"]
    assert POLICY.latent_target < tail["predicted"] <= tail["upper"]
    assert "--seeds 40 --seed-start 0" in proof["check"]
    quiet(here, test)
    assert here.flags(test)["latent_flake"].state == "resolved"


def fix_masked(here: World) -> None:
    """The container table: a verdict flickers between builds, then stays green, and the
    fault stays."""
    test = spec_of(0.46)
    for number, within in enumerate([False, False, True]):
        rows = [row(seed, wrong=True, within=within, bits=str(number)) for seed in range(6)]
        here.job(rows, test=test, build=f"container-{number}", sequence=number, diagnosed=True)
        if not within:
            assert "fix_masked" not in here.flags(test)
    flag = opened(here, "fix_masked", test)
    change = flag.evidence["figures"]["change"]
    assert (change["before"], change["after"], change["by"], change["turned_green"]) == (
        "container-1",
        "container-2",
        "faults",
        True,
    )
    assert list(change["same"]) == ["dx: s1 is subtracted twice"]
    assert "s1 is subtracted twice" in flag.evidence["words"]
    assert flag.evidence["rerun"]["builds"] == ["container-1", "container-2"]
    here.job(
        [row(seed, wrong=True, bits="4") for seed in range(6)],
        test=test,
        build="container-3",
        sequence=3,
        diagnosed=True,
    )
    assert here.flags(test)["fix_masked"].state == "open"  # green for good, and still wrong
    quiet(here, test)
    assert here.flags(test)["fix_masked"].state == "resolved"
    assert here.flags(test)["passes_by_tolerance"].state == "resolved"


def _lost(here: World, kind: str, verdict: str, test: dict[str, Any]) -> None:
    """Three devices: 7 of 10 runs on the first are lost, 3 of 80 on the others."""
    for device, lost, of in (("n1/0", 7, 10), ("n2/0", 2, 40), ("n3/0", 1, 40)):
        rows = [
            {**stored_jobs.unwell(seed, verdict, f"on {device}"), "device": device}
            if seed < lost
            else row(seed, device=device)
            for seed in range(of)
        ]
        here.job(rows, test=test)
    proof = opened(here, kind, test).evidence
    figures = proof["figures"]
    assert (figures["message"], figures["lost"]["failures"], figures["lost"]["runs"]) == (
        "on n3/0",
        10,
        90,
    )
    assert f"7 of 10 {kind} are on one device of 3, n1/0" in proof["words"]
    assert [factor["failed"] for factor in figures["factors"]["device"]] == [7, 2, 1]
    assert set(here.flags(test)) == {kind}  # what was lost never counts against the kernel
    quiet(here, test)
    assert here.flags(test)[kind].state == "resolved"


def hangs(here: World) -> None:
    _lost(here, "hangs", "hang", spec_of(0.47))


def crashes(here: World) -> None:
    _lost(here, "crashes", "crash", spec_of(0.50))


def passes_by_tolerance(here: World) -> None:
    test = spec_of(0.48)
    here.job([row(seed, wrong=seed < 3) for seed in range(4)], test=test)
    flag = opened(here, "passes_by_tolerance", test)
    assert flag.jobs == 1  # flagged by ingest, its evidence made whole by the assessment
    assert flag.evidence["figures"]["seeds"] == asdict(rate(3, 4))
    assert {example["digests"]["dx"] for example in flag.evidence["examples"]} == {
        f"000bad{seed:010x}" for seed in range(3)
    }
    quiet(here, test)
    assert here.flags(test)["passes_by_tolerance"].state == "resolved"


def tolerance_too_tight(here: World) -> None:
    test = spec_of(0.49)
    here.job([row(seed, within=False) for seed in range(4)], test=test)
    opened(here, "tolerance_too_tight", test)
    quiet(here, test)
    assert here.flags(test)["tolerance_too_tight"].state == "resolved"


def slower(here: World) -> None:
    test = spec_of(0.51)

    def night(sequence: int, kernel_s: float | None, seeds: int = 16, **changes: Any) -> None:
        rows = [
            row(seed, kernel_s=kernel_s and kernel_s * (1.01 if seed % 2 else 0.99))
            for seed in range(seeds)
        ]
        here.job(rows, test=test, build=f"b{sequence}", sequence=sequence, **changes)

    night(1, 2e-3)
    night(2, 2.15e-3)  # below the limit
    night(3, 4e-3, seeds=POLICY.slower_seeds - 1)  # too few
    night(3, 4e-3, context={"name": "after another", "before": [test]})  # measured nowhere else
    assert here.flags(test) == {}
    night(4, 3e-3)
    proof = opened(here, "slower", test).evidence
    change = proof["figures"]["time"]
    assert (change["before"]["seeds"], change["after"]["seeds"]) == (16, 16)
    assert change["low"] < 3 / 2.15 < change["high"]
    assert proof["words"] == "3 ms a seed, before 2.15 ms: 1.4 times (99.9%: 1.2 to 1.62)"
    assert proof["rerun"]["builds"] == ["b2", "b4"]
    night(4, None)  # it measured nothing, so it is no evidence
    assert here.flags(test)["slower"].jobs == 1
    night(5, 3e-3)  # as slow as the build before it, and slower than b2
    assert here.flags(test)["slower"].jobs == 2
    quiet(here, test, first=6, wrong=True)
    assert here.flags(test)["slower"].state == "open"  # seeds without a time say nothing of it
    with pytest.MonkeyPatch.context() as patch:  # b2 has left the window
        patch.setattr(device_times, "MAX_BUILDS", 1)
        night(8, 3e-3)
        assert here.flags(test)["slower"].jobs == 3
        quiet(here, test, first=9, wrong=True, kernel_s=2.2e-3)  # wrong, and as fast as before
    assert here.flags(test)["slower"].state == "resolved"


STORIES: tuple[Callable[[World], None], ...] = (
    flaky,
    nondeterministic,
    device_dependent,
    context_dependent,
    latent_flake,
    fix_masked,
    hangs,
    crashes,
    passes_by_tolerance,
    tolerance_too_tight,
    slower,
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One database for all stories: each has a test of its own."""
    with world(f"sqlite:///{tmp_path_factory.mktemp('stories') / 'gonogo.sqlite'}") as sqlite_world:
        yield sqlite_world


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_flag_of_each_kind_opens_and_is_over_by_itself(
    here: World, story: Callable[[World], None]
) -> None:
    story(here)


def test_flags_open_and_are_over_by_themselves_on_postgres(migrated_postgres_url: str) -> None:
    """Tell the stories that need a statement of their own; the others send the same ones."""
    with world(migrated_postgres_url) as postgres_world:
        for story in STORIES:
            if story not in (latent_flake, passes_by_tolerance, tolerance_too_tight):
                story(postgres_world)
        with engines.reading(postgres_world.engine) as session:
            messages = [
                message.topic
                for message in outbox.due(
                    session, topics=("flag.opened", "flag.resolved"), now=LATER, limit=500
                )
            ]
            all_flags = FLAGS.page(session, limit=500).items
        assert (
            messages.count("flag.resolved")
            == len([flag for flag in all_flags if flag.state == "resolved"]) + 1
        )  # one was reopened
        assert messages.count("flag.opened") == len(all_flags) + 1  # one was reopened
