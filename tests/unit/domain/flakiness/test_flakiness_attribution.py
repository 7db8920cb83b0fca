"""Attribution of failures on invented histories of each kind, and on a stale register."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo import emulator
from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness.attribution import Cause, attribute, beyond_chance
from gonogo.flakiness.rates import Outcome, rate
from gonogo.flakiness.samples import Sample, contexts, factor_words, outcome_factors
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.verdicts import Verdict
from numeric_cases import spec

PASSED, FAILED, LOST = Outcome.passed, Outcome.failed, Outcome.infrastructure
RUN = {"repeat": 0, "device": "d0", "build": "b", "context": "isolated", "host_run": "h"}


def sample(seed: int | None, failed: bool | Outcome = False, **changed: Any) -> Sample:
    """Return a run, by default the first in its own process on device d0."""
    outcome = failed if isinstance(failed, Outcome) else FAILED if failed else PASSED
    return Sample(
        seed=seed, outcome=outcome, **{**RUN, "position": 0, "digest": f"s{seed}", **changed}
    )


def crossed(seeds: int, repeats: int = 1) -> product[tuple[int, int]]:
    """Return every (seed, repeat)."""
    return product(range(seeds), range(repeats))


NONDETERMINISTIC = [
    sample(k, (k + r) % 3 == 0, repeat=r, digest=f"{k}.{(k + r) % 3}") for k, r in crossed(8, 3)
]
BY_DEVICE = [
    sample(k, d == "d1", repeat=r, device=d, digest=f"{k}{d}")
    for d in ("d0", "d1")
    for k, r in crossed(4, 2)
]
BY_CONTEXT = [
    sample(k, p > 0, repeat=r, context=c, digest=f"{k}{c}", position=p)
    for c, p in (("isolated", 0), ("group", 3))
    for k, r in crossed(4, 2)
]
BY_SEED = [sample(k, k < 3, repeat=r, digest=None) for k, r in crossed(10, 2)]
# no seed ran both first in its process and behind others, and as many fail of either
BEHIND = [sample(k, k % 2 == 1, repeat=r) for k, r in crossed(8, 2)] + [
    sample(8 + k, r == 1, repeat=r, position=1, digest=f"{k}.{r}") for k, r in crossed(10, 2)
]
NEVER_REPEATS = [
    sample(k, (k + r) % 2 == 1, repeat=r, device=d, digest=f"{k}{r}{d}")
    for d in ("d0", "d1")
    for k, r in crossed(20, 2)
]
ONE_RED_BUILD = [
    sample(k, build == "red", build=build, repeat=r)
    for build in ("green", "red")
    for k, r in crossed(8, 2)
]
ONE_RED_SEED = [replace(run, outcome=FAILED) if run.seed == 3 else run for run in ONE_RED_BUILD]
# one run in a hundred failed, on a device on which its seed ran once
RACE = [
    *(sample(k, repeat=r, device=f"d{r}") for k, r in crossed(50, 2) if (k, r) != (3, 1)),
    sample(3, True, repeat=1, device="d1", digest="race"),
    *(sample(k, repeat=2) for k in range(20) if k != 3),
]
# each run sums in one of two orders, and 3 seeds were first in their process twice
LUCKY = [sample(k, repeat=r, digest="left") for k, r in crossed(3, 2)] + [
    sample(k, odd, repeat=r + 2, position=1, digest="right" if odd else "left")
    for k, r in crossed(16, 2)
    for odd in [bool(r and k % 2)]
]
OUTCOMES_ALONE = [sample(None, True, digest=None) for _ in range(15)] + [
    sample(None, digest=None, context="group", position=4) for _ in range(15)
]


@pytest.mark.parametrize(
    ("runs", "cause"),
    [
        pytest.param(NONDETERMINISTIC, Cause.nondeterministic, id="seeds repeat differently"),
        pytest.param(BY_DEVICE, Cause.device_dependent, id="by device"),
        pytest.param(BY_CONTEXT, Cause.context_dependent, id="by context"),
        pytest.param(BY_SEED, Cause.seed_sensitive, id="by seed"),
        pytest.param(BY_SEED[::2], Cause.unknown, id="no seed repeats"),
        pytest.param(BEHIND, Cause.context_dependent, id="behind others"),
        pytest.param(OUTCOMES_ALONE, Cause.context_dependent, id="no seed, by context"),
        pytest.param(NEVER_REPEATS, Cause.nondeterministic, id="never repeats, two devices"),
        pytest.param(ONE_RED_BUILD, Cause.unknown, id="a build on which all fail"),
        pytest.param(ONE_RED_SEED, Cause.seed_sensitive, id="and a seed that fails on all"),
        pytest.param(RACE, Cause.unknown, id="a race isn't the device it showed on"),
        pytest.param(LUCKY, Cause.nondeterministic, id="first runs that agree by luck"),
        pytest.param([sample(k, True) for k in range(8)], Cause.broken, id="all red"),
        pytest.param([sample(k) for k in range(8)], Cause.stable, id="all green"),
        pytest.param([sample(k, True) for k in range(2)], Cause.unknown, id="two runs"),
        pytest.param([*map(sample, range(8)), sample(8, LOST)], Cause.infrastructure, id="a hang"),
    ],
)
def test_a_history_has_its_cause(runs: Sequence[Sample], cause: Cause) -> None:
    attribution = attribute(runs)
    assert attribution.cause is cause
    if cause not in (Cause.unknown, Cause.infrastructure):
        assert attribution.causes == (cause,)


def test_findings_show_examples_of_what_differs() -> None:
    first = attribute(NONDETERMINISTIC).findings[0]
    assert (first.compared.failures, first.examples[0].seed) == (8, 0)
    example = attribute(BY_DEVICE).findings[1].examples[0]
    assert (example.build, example.seed, example.place) == ("b", 0, "isolated, first")
    assert example.digests == {"d0": ["0d0"], "d1": ["0d1"]}
    many = [
        sample(k, repeat=r, device=d, digest=f"{d}.{r}")
        for d in ("d0", "d1")
        for k, r in crossed(4, 5)
    ]
    digests = {d: [f"{d}.{r}" for r in range(3)] for d in ("d0", "d1")}
    assert attribute(many).findings[1].examples[0].digests == digests  # at most three


def test_findings_say_their_counts_and_what_is_missing() -> None:
    hung = [sample(k, LOST, repeat=2, digest=None) for k in range(4)]
    without_seed = [sample(None, failed, digest=None) for failed in (False, True)]
    seeds = attribute([*BY_SEED, *hung, *without_seed]).findings[3]
    assert seeds.holds
    assert seeds.words == "3 of 10 seeds fail whenever they run, 0 sometimes"
    assert "not enough seeds were run twice: 0 of 3" in attribute(BY_SEED[::2]).words
    state = attribute(BEHIND).findings[2]
    assert (state.compared.failures, state.compared.runs) == (10, 10)
    assert state.words.endswith("none of 8 that were first in it")
    assert attribute([]).words == "no runs"
    lost = attribute([*map(sample, range(8)), sample(8, LOST)])
    assert (lost.failures.failures, lost.infrastructure.failures) == (0, 1)


def test_contexts_stand_with_their_names() -> None:
    assert [row.name for row in attribute(BY_CONTEXT).contexts] == ["isolated", "group"]
    assert attribute(OUTCOMES_ALONE).findings[2].rows[0].name == "group"


def test_a_sick_device_is_left_out() -> None:
    runs = [sample(k) for k in range(8)]
    runs += [sample(k, True, device="d1", digest="junk") for k in range(8)]
    sick = {"d1": Suspicion("d1", 6, 6, ())}
    assert attribute(runs).cause is Cause.device_dependent
    assert attribute(runs, sick=sick).cause is Cause.stable
    assert "6 of 6 unrelated tests" in attribute(runs, sick=sick).words
    assert attribute(runs[8:], sick=sick).cause is Cause.sick_device


@pytest.mark.parametrize(
    ("differing", "repeats", "is_known"),
    [
        ((3, 3), (0, 3), True),
        ((4, 4), (0, 0), True),  # most kernels repeat themselves
        ((2, 2), (0, 0), False),
        ((1, 20), (0, 30), False),
        ((6, 20), (0, 30), True),
        ((0, 20), (0, 30), False),
        ((1, 100), (60, 100), False),  # a difference the other way round
        ((20, 20), (40, 40), False),
    ],
)
def test_few_differences_may_be_a_rare_race_that_repeats_missed(
    differing: tuple[int, int], repeats: tuple[int, int], is_known: bool
) -> None:
    assert beyond_chance(rate(*differing), rate(*repeats)) is is_known


def test_the_report_s_table_comes_out_with_intervals_and_too_little_for_a_finding() -> None:
    """Five runs each: alone, with 5 tests, with 12 tests, of which one passed."""
    names = ("isolated", "5 tests", "12 tests")
    runs = [
        sample(None, True, context=c, digest=None, host_run=f"{c}{k}", position=int(c != names[0]))
        for c, k in product(names, range(5))
    ]
    runs[-1] = replace(runs[-1], outcome=PASSED)
    rows = contexts(runs)
    passed = [(row.name, row.runs, row.passed) for row in rows]
    assert passed == [("isolated", 5, 0), ("12 tests", 5, 1), ("5 tests", 5, 0)]
    assert (rows[0].p, rows[1].p, rows[1].pass_rate) == (None, pytest.approx(1), pytest.approx(0.2))
    assert (rows[1].higher or 1) < 0.5
    assert attribute(runs).cause is Cause.unknown  # one of fifteen would be chance


def test_the_emulator_s_stale_register_depends_on_what_ran_before() -> None:
    """Each seed runs first in a process, and after another seed: only that changes its bytes."""
    test = spec("layernorm_bw", (8, 96), regime="uniform")

    def run(seed: int, position: int) -> str:
        inputs = quantise(test, generate(test, seed))
        outputs = emulator.run(test, inputs, "stale-register", position=position)
        return str(outputs["dx"].tobytes().hex()[:4000])

    runs = []
    for seed, repeat in crossed(4, 2):
        name = f"{seed}{repeat}"
        runs.append(sample(seed, repeat=repeat, host_run=f"first{name}", digest=run(seed, 0)))
        run(20 + repeat, 1)  # another seed leaves its data in the register
        behind = {"host_run": f"behind{name}", "position": 1, "digest": run(seed, 1)}
        runs.append(sample(seed, True, repeat=repeat, **behind))
    attribution = attribute(runs)
    assert attribution.cause is Cause.context_dependent
    assert not attribution.findings[0].holds
    assert [row.name for row in attribution.contexts] == ["isolated", "isolated, not first"]


SAMPLES = st.builds(
    Sample,
    seed=st.none() | st.integers(0, 3),
    repeat=st.integers(0, 2),
    device=st.sampled_from("ab"),
    build=st.sampled_from("xy"),
    context=st.sampled_from(["isolated", "g"]),
    host_run=st.sampled_from("pq"),
    position=st.integers(0, 2),
    digest=st.none() | st.sampled_from("123"),
    outcome=st.sampled_from(list(Outcome)),
)


@given(st.lists(SAMPLES, max_size=40))
def test_any_history_has_one_cause_and_its_json(runs: list[Sample]) -> None:
    attribution = attribute(runs)
    assert attribution.words
    assert attribution.cause in attribution.causes
    json.dumps(asdict(attribution), allow_nan=False)
    assert attribute(list(reversed(runs))).cause is attribution.cause


@pytest.mark.parametrize(
    ("bad", "others", "words"),
    [
        ({"card": "0a", "device": "n1/0"}, {"card": "0b"}, "on one card of 2, 0a"),
        ({"device": "n1/1", "card": "0a"}, {"card": "0a"}, "on one device of 2, n1/1"),
        ({"build": "new"}, {}, "of one build of 2, new"),
        ({"context": "suite"}, {}, "on one context of 2, suite"),
        ({"position": 3}, {}, "behind others"),
    ],
)
def test_hangs_are_attributed_to_what_has_more_of_them(
    bad: dict[str, Any], others: dict[str, Any], words: str
) -> None:
    hung = {"digest": None, "verdict": "hang"}
    runs = [sample(k, LOST, **hung, **bad) if k < 7 else sample(k, **bad) for k in range(10)]
    runs += [sample(k, LOST, **hung, **others) if k < 3 else sample(k, **others) for k in range(80)]
    runs += [sample(k, LOST, digest=None, verdict="error", **bad) for k in range(9)]  # no trials
    factors = outcome_factors(runs, Verdict.hang)
    assert factor_words(factors, "hangs").startswith(f"7 of 10 hangs are {words} (p = ")
    assert factor_words(outcome_factors(runs, Verdict.crash), "crashes") == ""
