"""A chunk with a reference build on a real worker: both builds run, and a fault of the reference
never counts against the kernel."""

from __future__ import annotations

from typing import Any

import pytest

from patience import WAIT_S, scaled
from torch_interpreter import builds_file
from worker_process import TINY, Answer, Workplace


@pytest.fixture(scope="module")
def at_work(shared_place: Workplace) -> Workplace:
    shared_place.start()
    return shared_place


def against(place: Workplace, build: str, reference: str, seeds: int = 3, **options: Any) -> Answer:
    return place.run(build, seeds, reference={"build": reference}, **options)


def test_two_builds_of_the_emulator_are_compared_seed_by_seed(at_work: Workplace) -> None:
    test = {**TINY, "shape": [1, 64, 1, 416]}
    answer = against(at_work, "tt-train-2025", "correct", 2, executor="emulator", test=test)
    assert set(answer.verdicts.values()) == {"pass_by_tolerance"}
    for row in answer.rows:
        dx = row["outputs"]["dx"]["reference"]
        assert (dx["build"], dx["explanation"], dx["within"]) == ("correct", "explained", True)
        assert row["outputs"]["dx"]["explanation"] == "unexplained"
        assert row["outputs"]["dgamma"]["reference"]["max_abs"] == 0
        assert "dx: rounding explains correct, not this build" in row["message"]
    # the reference runs in other child processes, so the kernel's positions start at 0
    assert sorted(row["position"] for row in answer.rows) == [0, 1]
    assert len({row["host_run"] for row in answer.rows}) == 1


def test_a_build_is_like_itself_also_in_repeats(at_work: Workplace) -> None:
    work = [[seed, repeat] for seed in range(2) for repeat in range(3)]
    answer = against(at_work, "fine", "fine", work=work)
    assert (answer.work, set(answer.verdicts.values())) == (work, {"pass"})
    outputs = [output for row in answer.rows for output in row["outputs"].values()]
    assert {output["reference"]["mismatch_fraction"] for output in outputs} == {0}
    assert not any(row.get("message") for row in answer.rows)


@pytest.mark.parametrize(
    ("reference", "bad", "message"),
    [
        ("hang-sometimes", [2], "no answer within"),
        ("crash-sometimes", [2], "SIGSEGV"),
        ("raises-sometimes", [2], "did not like it"),
        ("missing-sometimes", [2], "missing"),
        ("nothing", [0, 1, 2], "can't be run"),
    ],
)
def test_what_the_reference_does_wrong_is_an_error_that_names_it(
    at_work: Workplace, reference: str, bad: list[int], message: str
) -> None:
    work = [[0, 0], [2, 0], [1, 0]]  # after the bad seed another follows in a fresh child
    answer = against(at_work, "fine", reference, work=work, seed_deadline_s=scaled(1))
    assert (answer.end["outcome"], answer.work) == ("done", sorted(work))
    assert answer.verdicts == dict.fromkeys(range(3), "pass") | dict.fromkeys(bad, "error")
    for row in answer.rows:
        if row["verdict"] == "error":
            assert row["outputs"] == {}
            assert row["message"].startswith(f"reference build {reference}: ")
            assert message in row["message"]
        else:
            assert row["outputs"]["dx"]["reference"]["explanation"] == "explained"


def test_what_the_kernel_does_wrong_stays_the_kernels(at_work: Workplace) -> None:
    for build, verdict in (("crash-sometimes", "crash"), ("nan-sometimes", "fail")):
        answer = against(at_work, build, "fine", work=[[1, 0], [2, 0]])
        assert answer.verdicts == {1: "pass", 2: verdict}


def test_a_cancel_ends_a_reference_that_hangs(at_work: Workplace) -> None:
    attempt = at_work.publish("fine", 2, reference={"build": "hang"}, seed_deadline_s=10 * WAIT_S)
    at_work.beat(lambda body: body["attempt"] == attempt and body["stage"] == "reference")
    at_work.cancel(attempt)
    answer = at_work.wait(attempt)
    assert (answer.end["outcome"], answer.rows) == ("cancelled", [])
    assert at_work.run("fine", 2).verdicts == {0: "pass", 1: "pass"}


@pytest.mark.slow
def test_torch_builds_are_compared_on_a_worker(place: Workplace) -> None:
    place.start("torch", GONOGO_BUILDS=builds_file(place.folder))
    tolerance = {"rtol": 1.6e-2, "atol": 1e-5}
    test = {"kernel": "layernorm_fw", "shape": [4, 256, 128], "tolerance": tolerance}
    builds = ("torch-eager-linear", "torch-decomposed-linear")
    answer = against(place, *builds, executor="torch", test=test)
    assert set(answer.verdicts.values()) == {"pass"}
    for row in answer.rows:
        assert row["arithmetic"] == "blocked sums"  # found: the build declares none
        assert set(row["outputs"]) == {"y", "mean", "rstd", "linear"}
        assert row["outputs"]["linear"]["reference"]["explanation"] == "not_judged"
    changed = max(row["outputs"]["linear"]["reference"]["max_abs"] for row in answer.rows)
    assert changed > 10 * 2.0**-8
