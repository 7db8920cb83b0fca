"""Each kind of flag opens on the numbers that call for it, and is over by itself after the quiet
period: a story of jobs for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rows_of_layernorm
import stored_jobs
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests import device_times
from records import pick
from rows_of_layernorm import CHANGE, INSIDE, STORED
from stored_histories import World, row, spec_of, world

LATER = datetime.now(UTC) + timedelta(days=1)
QUIET = POLICY.quiet_seeds
EVIDENCE = {*("sentence", "words", "job", "build", "seeds", "of"), "rerun", "check", "extent"}
Test = dict[str, Any]


def opened(here: World, kind: str, test: Test, shape: str = "3,273,1,8462") -> dict[str, Any]:
    """Return the evidence of the open flag of that kind; it must suffice to run it again."""
    flag = here.flags(test)[kind]
    assert flag.state == "open"
    assert flag.evidence.keys() >= EVIDENCE
    command = f"gonogo check --kernel {test['kernel']} --shape {shape} --"
    assert flag.evidence["check"].startswith(command)
    assert flag.evidence["rerun"]["seeds"]
    assert flag.evidence["rerun"]["builds"]
    return flag.evidence


def state(here: World, kind: str, test: Test) -> str:
    return str(here.flags(test)[kind].state)


def quiet(here: World, test: Test, *, first: int = 50, repeats: int = 1, **changes: Any) -> None:
    """Store the quiet period: explained, green seeds on later builds."""
    for number in range(POLICY.quiet_builds):
        pairs = [(seed, repeat) for seed in range(QUIET // 2) for repeat in range(repeats)]
        rows = [row(seed, repeat=repeat, **changes) for seed, repeat in pairs]
        here.job(rows, test=test, build=f"later{number}", sequence=first + number)


def flaky(here: World) -> None:
    test = spec_of(0.41)
    here.job([row(seed, wrong=True, within=seed != 3) for seed in range(8)], test=test)
    proof = opened(here, "flaky", test)
    failures = proof["figures"]["failures"]
    assert pick(failures, "failures", "runs") == (1, 8)
    assert failures["low"] < 1 / 8 < failures["high"]
    assert "--seeds 1 --seed-start 3" in proof["check"]
    version = here.flags(test)["flaky"].version
    here.job([row(seed, wrong=True) for seed in (0, 1)], test=test)  # green seeds say nothing new
    assert here.flags(test)["flaky"].version == version
    quiet(here, test)
    assert state(here, "flaky", test) == "resolved"
    here.job([row(0, within=False), row(1)], test=test, build="worse", sequence=90)
    assert state(here, "flaky", test) == "reopened"


def nondeterministic(here: World) -> None:
    test = spec_of(0.42)
    pairs = [(seed, repeat) for seed in range(4) for repeat in (0, 1)]
    here.job(
        [row(seed, repeat=repeat, bits="ab"[repeat] * (seed == 2)) for seed, repeat in pairs],
        test=test,
    )
    proof = opened(here, "nondeterministic", test)
    assert pick(proof["figures"]["compared"], "failures", "runs") == (1, 4)
    assert len({example["digests"]["dx"] for example in proof["examples"]}) == 2
    assert "--seed-start 2 --repeats 8" in proof["check"]
    quiet(here, test)
    # seeds that ran once say nothing of it
    assert state(here, "nondeterministic", test) == "open"
    quiet(here, test, first=60, repeats=2)
    assert state(here, "nondeterministic", test) == "resolved"


def device_dependent(here: World) -> None:
    test, devices = spec_of(0.43), ["n1/0", "n2/0"]
    for device in devices:
        here.job([row(seed, device=device, bits=device[1]) for seed in range(4)], test=test)
    proof = opened(here, "device_dependent", test)
    assert proof["rerun"]["devices"] == devices
    assert set(proof["figures"]["examples"][0]["digests"]) == set(devices)
    for device in devices:
        quiet(here, test, device=device)
    assert state(here, "device_dependent", test) == "resolved"


def context_dependent(here: World) -> None:
    test, grouped = spec_of(0.44), {"name": "after matmul", "before": []}
    here.job([row(seed) for seed in range(8)], test=test)
    wrong = [row(seed, wrong=True, within=False, position=1) for seed in range(8)]
    here.job(wrong, test=test, context=grouped)
    proof = opened(here, "context_dependent", test)
    tallies = [pick(one, "name", "passed", "failed") for one in proof["figures"]["contexts"]]
    assert sorted(tallies) == [("after matmul", 0, 8), ("isolated", 8, 0)]
    assert proof["rerun"]["contexts"] == ["isolated", "after matmul"]
    assert here.flags(test)["flaky"].evidence["figures"]["cause"] == "context_dependent"
    rows = [row(seed) for seed in range(QUIET // 2)]
    for number, context in enumerate(["isolated", grouped, "isolated", grouped]):
        place = {"build": f"later{number % 2}", "sequence": 50 + number % 2}
        here.job(rows, test=test, context=context, **place)
    assert state(here, "context_dependent", test) == "resolved"


def latent_flake(here: World) -> None:
    test = spec_of(0.45)
    rows = [row(seed, bits="old") for seed in range(40)]
    for seed, seed_row in enumerate(rows):  # up to .98; of 1,000 seeds 11 fail
        ratio = 0.5 - 0.11 * math.log(1 - (seed + 0.5) / 40)
        seed_row["outputs"]["dx"]["tolerance_ratio"] = ratio
    here.job(rows, test=test)
    proof = opened(here, "latent_flake", test)
    tail = proof["figures"]["tail"]
    assert proof["figures"]["target"] == POLICY.latent_target < tail["predicted"] <= tail["upper"]
    assert "--seeds 40 --seed-start 0" in proof["check"]
    quiet(here, test)
    assert state(here, "latent_flake", test) == "resolved"


def fix_masked(here: World) -> None:
    """The container table: a verdict flickers between builds, then stays green, and the
    fault stays."""
    test = spec_of(0.46)

    def container(number: int, *, within: bool) -> None:
        rows = [row(seed, wrong=True, within=within, bits=str(number)) for seed in range(6)]
        place: Any = {"build": f"container-{number}", "sequence": number}
        here.job(rows, test=test, diagnosed=True, **place)

    for number in (0, 1):
        container(number, within=False)
        assert "fix_masked" not in here.flags(test)
    container(2, within=True)
    proof = opened(here, "fix_masked", test)
    change = proof["figures"]["change"]
    names = ("before", "after", "by", "turned_green")
    assert pick(change, *names) == ("container-1", "container-2", "faults", True)
    assert list(change["same"]) == ["dx: s1 is subtracted twice"]
    assert "s1 is subtracted twice" in proof["words"]
    assert proof["rerun"]["builds"] == ["container-1", "container-2"]
    container(3, within=True)
    assert state(here, "fix_masked", test) == "open"  # green for good, and still wrong
    quiet(here, test)
    for kind in ("fix_masked", "passes_by_tolerance"):
        assert state(here, kind, test) == "resolved"


def _lost(here: World, kind: str, verdict: str, did: str, test: Test) -> None:
    """Three devices: 7 of 10 runs on the first are lost, 3 of 80 on the others."""
    for device, lost, of in (("n1/0", 7, 10), ("n2/0", 2, 40), ("n3/0", 1, 40)):
        unwell = [stored_jobs.unwell(seed, verdict, f"on {device}") for seed in range(lost)]
        rows = [*unwell, *(row(seed) for seed in range(lost, of))]
        here.job([{**one, "device": device} for one in rows], test=test)
    proof = opened(here, kind, test)
    figures = proof["figures"]
    assert (figures["message"], pick(figures["lost"], "failures", "runs")) == ("on n3/0", (10, 90))
    where = f"7 of 10 {kind} are on one device of 3, n1/0"
    assert proof["words"].startswith(f"{rate(10, 90).words} runs {did}; {where}")
    assert [factor["failed"] for factor in figures["factors"]["device"]] == [7, 2, 1]
    assert set(here.flags(test)) == {kind}  # what was lost never counts against the kernel
    quiet(here, test)
    assert state(here, kind, test) == "resolved"


def hangs(here: World) -> None:
    _lost(here, "hangs", "hang", "hung", spec_of(0.47))


def crashes(here: World) -> None:
    _lost(here, "crashes", "crash", "crashed", spec_of(0.50))


def passes_by_tolerance(here: World) -> None:
    test = spec_of(0.48)
    here.job([row(seed, wrong=seed < 3) for seed in range(4)], test=test)
    proof = opened(here, "passes_by_tolerance", test)
    # flagged by ingest, its evidence made whole by the assessment
    assert here.flags(test)["passes_by_tolerance"].jobs == 1
    assert proof["figures"]["seeds"] == asdict(rate(3, 4))
    digests = {example["digests"]["dx"] for example in proof["examples"]}
    assert digests == {f"000bad{seed:010x}" for seed in range(3)}
    quiet(here, test)
    assert state(here, "passes_by_tolerance", test) == "resolved"


def tolerance_too_tight(here: World) -> None:
    test = spec_of(0.49)
    here.job([row(seed, within=False) for seed in range(4)], test=test)
    opened(here, "tolerance_too_tight", test)
    quiet(here, test)
    assert state(here, "tolerance_too_tight", test) == "resolved"


def slower(here: World) -> None:
    test = spec_of(0.51)

    def night(sequence: int, kernel_s: float | None, seeds: int = 16, **changes: Any) -> None:
        spread = (0.99, 1.01)
        times = [kernel_s and kernel_s * spread[seed % 2] for seed in range(seeds)]
        rows = [row(seed, kernel_s=time) for seed, time in enumerate(times)]
        here.job(rows, test=test, build=f"b{sequence}", sequence=sequence, **changes)

    night(1, 2e-3)
    night(2, 2.15e-3)  # below the limit
    night(3, 4e-3, seeds=POLICY.slower_seeds - 1)  # too few
    night(3, 4e-3, context={"name": "after another", "before": [test]})  # measured nowhere else
    assert here.flags(test) == {}
    night(4, 3e-3)
    proof = opened(here, "slower", test)
    change = proof["figures"]["time"]
    assert (change["before"]["seeds"], change["after"]["seeds"]) == (16, 16)
    assert change["low"] < 3 / 2.15 < change["high"]
    assert proof["words"] == "3 ms a seed, before 2.15 ms: 1.4 times (99.9%: 1.2 to 1.62)"
    assert proof["rerun"]["builds"] == ["b2", "b4"]
    night(4, None)  # it measured nothing, so it is no evidence
    assert here.flags(test)["slower"].jobs == 1
    night(5, 3e-3)  # as slow as the build before it, and slower than b2
    assert opened(here, "slower", test)["rerun"]["builds"] == ["b2", "b5"]
    assert here.flags(test)["slower"].jobs == 2
    quiet(here, test, first=6, wrong=True)
    assert state(here, "slower", test) == "open"  # seeds without a time say nothing of it
    with pytest.MonkeyPatch.context() as patch:  # b2 has left the window
        patch.setattr(device_times, "MAX_BUILDS", 1)
        night(8, 3e-3)
        assert here.flags(test)["slower"].jobs == 3
        quiet(here, test, first=9, wrong=True, kernel_s=2.2e-3)  # wrong, and as fast as before
    assert state(here, "slower", test) == "resolved"


def layernorm(atol: float) -> Test:
    return {**rows_of_layernorm.TEST, "tolerance": {"rtol": 1.6e-2, "atol": atol}}


def computed(
    here: World, test: Test, sequence: int, *, stores: int = 0, seeds: int = 8, **statistics: Any
) -> None:
    """Store a build's job of explained seeds; the last `stores` of them store x^.

    Seeds beyond the first eight repeat their numbers.
    """
    rows = [
        rows_of_layernorm.row(seed % 8, stores=seed >= seeds - stores) | {"seed": seed}
        for seed in range(seeds)
    ]
    for seed_row in rows:
        seed_row["outputs"]["y"] |= statistics
    here.job(rows, test=test, build=f"b{sequence}", sequence=sequence)


def arithmetic_changed(here: World) -> None:
    test = layernorm(0.05)
    for sequence in (1, 2):
        computed(here, test, sequence)
    assert here.flags(test) == {}
    computed(here, test, 3, stores=8)
    proof = opened(here, "arithmetic_changed", test, "1,1,16,256")
    assert proof["words"] == f"y: {CHANGE}"
    assert pick(proof, "before", "after") == ({"y": INSIDE}, {"y": STORED})
    assert proof["found_in"] == {"y": "8 of 8 seeds"}
    assert proof["earlier_builds"] == {"y": ["b2", "b1"]}
    assert proof["rerun"]["builds"] == ["b2", "b3"]
    (flag,) = here.flags(test).values()  # nothing else is wrong with it
    computed(here, test, 4, stores=8)
    (renewed,) = here.flags(test).values()
    assert (renewed.id, renewed.jobs) == (flag.id, 2)
    for sequence in (5, 6):
        computed(here, test, sequence, seeds=QUIET // POLICY.quiet_builds)
    assert state(here, "arithmetic_changed", test) == "resolved"
    computed(here, test, 7, stores=8)
    assert state(here, "arithmetic_changed", test) == "reopened"
    with engines.reading(here.engine) as session:
        stored = session.get(FlagRow, flag.id)
        assert stored is not None
        assert [entry.what for entry in stored.history] == ["reopened", "resolved", "opened"]


STORIES: tuple[Callable[[World], None], ...] = (
    *(flaky, nondeterministic, device_dependent, context_dependent, latent_flake, fix_masked),
    *(hangs, crashes, passes_by_tolerance, tolerance_too_tight, slower, arithmetic_changed),
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
            topics = ("flag.opened", "flag.resolved")
            due = outbox.due(session, topics=topics, now=LATER, limit=500)
            messages = [message.topic for message in due]
            states = [flag.state for flag in FLAGS.page(session, limit=500).items]
        reopened = states.count("reopened")
        assert reopened == 2
        assert messages.count("flag.resolved") == states.count("resolved") + reopened
        assert messages.count("flag.opened") == len(states) + reopened


def test_a_new_arithmetic_that_stays_is_expected_after_three_nights(here: World) -> None:
    test = layernorm(0.06)
    for sequence, stores in enumerate((0, 0, 8, 8, 8, 8), 1):
        computed(here, test, sequence, stores=stores)
    # the tie of builds 1 to 4 says nothing, then it is expected
    assert here.flags(test)["arithmetic_changed"].jobs == 2
    computed(here, test, 7)
    words = here.flags(test)["arithmetic_changed"].evidence["words"]
    assert words == f'y: was "{STORED}", is "{INSIDE}"'


UNEXPLAINED = {"explanation": "inconclusive", "verdict": "inconclusive"}
SILENT: dict[str, list[dict[str, Any]]] = {
    "small": [{"sequence": 1}, {"sequence": 2, "stores": 8, "count": 999}],
    "small before": [{"sequence": 1, "count": 999}, {"sequence": 2, "stores": 8}],
    "first build": [{"sequence": 2, "stores": 8}],
    "older build": [{"sequence": 2}, {"sequence": 1, "stores": 8}],
    "not explained": [{"sequence": 1}, {"sequence": 2, "stores": 8, **UNEXPLAINED}],
    "mixed": [{"sequence": 1, "stores": 3}, {"sequence": 2, "stores": 5}],
}
"""Builds that say nothing about the arithmetic, in the order of their jobs."""


@pytest.mark.parametrize("case", SILENT)
def test_what_says_nothing_about_the_arithmetic_opens_no_flag(here: World, case: str) -> None:
    test = layernorm(0.1 + 0.01 * list(SILENT).index(case))
    for build in SILENT[case]:
        computed(here, test, **build)
    assert here.flags(test) == {}
