"""Attribution on invented histories of each kind, the emulator's stale register, and the table of a
bug report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
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
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict

PASSED, FAILED = Outcome.passed, Outcome.failed


def sample(seed: int | None, outcome: Outcome = PASSED, **changed: Any) -> Sample:
    """Return a run, by default the first in its own process on device d0."""
    fields = {
        "repeat": 0,
        "device": "d0",
        "build": "b",
        "context": "isolated",
        "host_run": "h",
        "position": 0,
        "digest": f"s{seed}",
    }
    return Sample(seed=seed, outcome=outcome, **{**fields, **changed})


def cause(samples: Iterable[Sample]) -> Cause:
    return attribute(samples).cause


def test_a_seed_that_repeats_differently_is_nondeterminism() -> None:
    runs = [
        sample(k, FAILED if (k + r) % 3 == 0 else PASSED, repeat=r, digest=f"{k}.{(k + r) % 3}")
        for k in range(8)
        for r in range(3)
    ]
    attribution = attribute(runs)
    assert attribution.cause is Cause.nondeterministic
    assert attribution.findings[0].compared.failures == 8
    assert attribution.findings[0].examples[0].seed == 0


def test_equal_seeds_that_differ_by_device() -> None:
    runs = [
        sample(k, FAILED if d == "d1" else PASSED, repeat=r, device=d, digest=f"{k}{d}")
        for k in range(4)
        for d in ("d0", "d1")
        for r in range(2)
    ]
    attribution = attribute(runs)
    assert attribution.cause is Cause.device_dependent
    assert attribution.causes == (Cause.device_dependent,)
    example = attribution.findings[1].examples[0]
    assert (example.build, example.seed, example.place) == ("b", 0, "isolated, first")
    assert example.digests == {"d0": ["0d0"], "d1": ["0d1"]}


def test_an_example_shows_at_most_three_digests_of_a_level() -> None:
    runs = [
        sample(k, repeat=r, device=d, digest=f"{d}.{r}")
        for k in range(4)
        for d in ("d0", "d1")
        for r in range(5)
    ]
    example = attribute(runs).findings[1].examples[0]
    assert example.digests == {d: [f"{d}.{r}" for r in range(3)] for d in ("d0", "d1")}


def test_equal_seeds_that_differ_by_context() -> None:
    runs = [
        sample(
            k,
            FAILED if c == "group" else PASSED,
            repeat=r,
            context=c,
            digest=f"{k}{c}",
            position=3 if c == "group" else 0,
        )
        for k in range(4)
        for c in ("isolated", "group")
        for r in range(2)
    ]
    attribution = attribute(runs)
    assert attribution.cause is Cause.context_dependent
    assert [row.name for row in attribution.contexts] == ["isolated", "group"]


def test_steady_seeds_of_which_some_fail_are_seed_sensitive() -> None:
    assert (
        cause(sample(k, FAILED if k < 3 else PASSED, repeat=r) for k in range(10) for r in range(2))
        is Cause.seed_sensitive
    )


def test_a_seed_is_blamed_by_its_outcomes_alone_and_beside_hangs() -> None:
    runs = [
        sample(k, FAILED if k < 3 else PASSED, repeat=r, digest=None)
        for k in range(10)
        for r in range(2)
    ]
    assert cause(runs) is Cause.seed_sensitive
    hung = [sample(k, Outcome.infrastructure, repeat=2, digest=None) for k in range(4)]
    without_seed = [sample(None, digest=None), sample(None, FAILED, digest=None)]
    seeds = attribute([*runs, *hung, *without_seed]).findings[3]
    assert seeds.holds
    assert seeds.words == "3 of 10 seeds fail whenever they run, 0 sometimes"


def test_without_a_repeat_the_seed_cannot_be_blamed() -> None:
    attribution = attribute(sample(k, FAILED if k < 3 else PASSED) for k in range(10))
    assert attribution.cause is Cause.unknown
    assert "not enough seeds were run twice: 0 of 3" in attribution.words


def test_all_red_is_broken_all_green_stable_and_two_runs_neither() -> None:
    assert cause(sample(k, FAILED) for k in range(8)) is Cause.broken
    assert cause(sample(k) for k in range(8)) is Cause.stable
    assert cause([sample(0, FAILED), sample(1, FAILED)]) is Cause.unknown
    assert attribute([]).words == "no runs"


def test_hangs_are_apart() -> None:
    runs = [sample(k) for k in range(8)] + [sample(8, Outcome.infrastructure, digest=None)]
    attribution = attribute(runs)
    assert attribution.cause is Cause.infrastructure
    assert (attribution.failures.failures, attribution.infrastructure.failures) == (0, 1)


def test_a_sick_device_is_left_out() -> None:
    runs = [sample(k) for k in range(8)] + [
        sample(k, FAILED, device="d1", digest="junk") for k in range(8)
    ]
    sick = {"d1": Suspicion("d1", 6, 6, ())}
    assert attribute(runs).cause is Cause.device_dependent
    assert attribute(runs, sick=sick).cause is Cause.stable
    assert "6 of 6 unrelated tests" in attribute(runs, sick=sick).words
    assert attribute(runs[8:], sick=sick).cause is Cause.sick_device


def test_a_kernel_that_never_repeats_itself_shows_no_device_by_its_digests() -> None:
    runs = [
        sample(k, FAILED if (k + r) % 2 else PASSED, repeat=r, device=d, digest=f"{k}{r}{d}")
        for k in range(20)
        for d in ("d0", "d1")
        for r in range(2)
    ]
    assert attribute(runs).causes == (Cause.nondeterministic,)
    assert not beyond_chance(rate(20, 20), rate(40, 40))
    assert beyond_chance(rate(20, 20), rate(0, 40))


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
    ],
)
def test_few_differences_may_be_a_rare_race_that_repeats_missed(
    differing: tuple[int, int], repeats: tuple[int, int], is_known: bool
) -> None:
    assert beyond_chance(rate(*differing), rate(*repeats)) is is_known


def test_what_ran_before_is_blamed_where_only_runs_behind_others_differ() -> None:
    """No seed ran both first in its process and behind others, and as many fail of either."""
    runs = [sample(k, FAILED if k % 2 else PASSED, repeat=r) for k in range(8) for r in range(2)]
    runs += [
        sample(k, FAILED if r else PASSED, repeat=r, position=1, digest=f"{k}.{r}")
        for k in range(8, 18)
        for r in range(2)
    ]
    attribution = attribute(runs)
    assert attribution.cause is Cause.context_dependent
    state = attribution.findings[2]
    assert (state.compared.failures, state.compared.runs) == (10, 10)
    assert state.words.endswith("none of 8 that were first in it")


def test_a_build_on_which_all_fail_does_not_make_a_test_seed_sensitive() -> None:
    runs = [
        sample(k, FAILED if build == "red" else PASSED, build=build, repeat=r)
        for build in ("green", "red")
        for k in range(8)
        for r in range(2)
    ]
    assert cause(runs) is Cause.unknown
    one_seed = [replace(run, outcome=FAILED) if run.seed == 3 else run for run in runs]
    assert cause(one_seed) is Cause.seed_sensitive


def test_a_race_is_not_blamed_on_where_it_happened_to_show() -> None:
    """One run in a hundred failed, on a device on which its seed ran once."""
    runs = [sample(k, repeat=r, device=d) for k in range(50) for r, d in enumerate(("d0", "d1"))]
    runs[7] = sample(3, FAILED, repeat=1, device="d1", digest="race")
    runs += [sample(k, repeat=2) for k in range(20) if k != 3]
    assert cause(runs) is Cause.unknown


def test_few_first_runs_that_agree_by_luck_do_not_blame_the_process() -> None:
    """Each run sums in one of two orders, and 3 seeds were first in their process twice."""
    runs = [sample(k, repeat=r, position=0, digest="left") for k in range(3) for r in range(2)]
    runs += [
        sample(k, FAILED if r and k % 2 else PASSED, repeat=r + 2, position=1, digest=digest)
        for k in range(16)
        for r, digest in enumerate(("left", "right" if k % 2 else "left"))
    ]
    assert cause(runs) is Cause.nondeterministic


def test_outcomes_alone_show_a_context_where_seeds_are_not_controlled() -> None:
    runs = [sample(None, FAILED, digest=None) for _ in range(15)]
    runs += [sample(None, PASSED, digest=None, context="group", position=4) for _ in range(15)]
    attribution = attribute(runs)
    assert attribution.cause is Cause.context_dependent
    assert attribution.findings[2].rows[0].name == "group"


def test_the_report_s_table_comes_out_with_intervals_and_too_little_for_a_finding() -> None:
    # five runs each: alone, with 5 tests, with 12 tests, of which one passed
    runs = [
        sample(
            None, FAILED, context=c, digest=None, host_run=f"{c}{k}", position=int(c != "isolated")
        )
        for c in ("isolated", "5 tests", "12 tests")
        for k in range(5)
    ]
    runs[-1] = replace(runs[-1], outcome=PASSED)
    rows = contexts(runs)
    passed = [(row.name, row.runs, row.passed) for row in rows]
    assert passed == [("isolated", 5, 0), ("12 tests", 5, 1), ("5 tests", 5, 0)]
    assert rows[0].p is None
    assert rows[1].p == pytest.approx(1.0)
    assert rows[1].higher is not None
    assert rows[1].higher < 0.5
    assert rows[1].pass_rate == pytest.approx(0.2)
    assert (
        attribute(runs).cause is Cause.unknown
    )  # one of fifteen: a difference between the groups would be chance


def test_the_emulator_s_stale_register_depends_on_what_ran_before() -> None:
    """Each seed runs first in a process, and after another seed: only that changes its bytes."""
    test = TestSpec.parse(
        {
            "kernel": "layernorm_bw",
            "shape": [8, 96],
            "inputs": {"regime": "uniform", "low": -1, "high": 1},
        }
    )

    def run(seed: int, position: int) -> str:
        inputs = quantise(test, generate(test, seed))
        return (
            emulator.run(test, inputs, "stale-register", position=position)["dx"]
            .tobytes()
            .hex()[:4000]
        )

    runs = []
    for seed in range(4):
        for repeat in range(2):
            runs.append(
                sample(
                    seed,
                    PASSED,
                    repeat=repeat,
                    host_run=f"first{seed}{repeat}",
                    digest=run(seed, 0),
                )
            )
            run(20 + repeat, 1)  # another seed leaves its data in the register
            runs.append(
                sample(
                    seed,
                    FAILED,
                    repeat=repeat,
                    host_run=f"behind{seed}{repeat}",
                    position=1,
                    digest=run(seed, 1),
                )
            )
    attribution = attribute(runs)
    assert attribution.cause is Cause.context_dependent
    assert not attribution.findings[0].holds
    assert [row.name for row in attribution.contexts] == ["isolated", "isolated, not first"]


def test_a_hundred_thousand_runs_are_attributed() -> None:
    attribution = attribute(
        [Sample(k // 2, k % 2, "d0", "b", "isolated", "h", 0, "x", PASSED) for k in range(100_000)]
    )
    assert attribution.cause is Cause.stable
    assert attribution.findings[0].compared.runs == 50_000


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


def test_every_cause_says_what_it_means() -> None:
    assert all(member.sentence for member in Cause)


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
    lost = Outcome.infrastructure
    runs = [sample(k, lost, **hung, **bad) if k < 7 else sample(k, **bad) for k in range(10)]
    runs += [sample(k, lost, **hung, **others) if k < 3 else sample(k, **others) for k in range(80)]
    runs += [sample(k, lost, digest=None, verdict="error", **bad) for k in range(9)]  # no trials
    factors = outcome_factors(runs, Verdict.hang)
    assert factor_words(factors, "hangs").startswith(f"7 of 10 hangs are {words} (p = ")
    assert factor_words(outcome_factors(runs, Verdict.crash), "crashes") == ""
