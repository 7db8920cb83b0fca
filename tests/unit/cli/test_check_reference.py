"""`gonogo check --reference-build`: what it reports, and a reference build that misbehaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gonogo.cli.app import app
from gonogo_workers.cli import references

LARGER = ("--kernel", "layernorm_bw", "--shape", "64,416", "--rtol", "1e-3", "--atol", "0.5")


def check(*words: str) -> Result:
    return CliRunner().invoke(app, ["check", *LARGER, *words])


def report(result: Result) -> dict[str, Any]:
    check_report: dict[str, Any] = json.loads(result.stdout)
    return check_report


@pytest.mark.parametrize("other", ["correct", "double-subtract"])
def test_the_comparison_is_in_the_report_and_a_wrong_reference_is_told(other: str) -> None:
    result = check("--build", "correct", "--reference-build", other, "--seeds", "2", "--json")
    check_report = report(result)
    assert (check_report["verdict"], result.exit_code) == ("pass", 0), "this build is right"
    for seed in check_report["seeds"]:
        dx = seed["outputs"]["dx"]["reference"]
        assert dx["build"] == other
        is_wrong = other != "correct"
        assert dx["explanation"] == ("unexplained" if is_wrong else "explained")
        message = "dx: rounding explains this build, not double-subtract"
        assert (message in seed.get("message", "")) is is_wrong


def test_on_a_terminal_a_table_says_how_far_they_are_apart() -> None:
    output = check("--build", "correct", "--reference-build", "bf16-accumulate").stdout
    assert "build correct compared with bf16-accumulate on emulator" in output
    assert "against bf16-accumulate" in output
    assert "elements that differ" in output


def test_seeds_that_do_not_fit_in_memory_together_are_run_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        references, "MAX_REFERENCE_BYTES", 2 * 64 * 416 * references.BYTES_PER_ELEMENT
    )
    words = "--build correct --reference-build correct --seeds 5 --repeats 2 --json"
    check_report = report(check(*words.split()))
    assert check_report["counts"] == {"pass": 10}


def test_a_reference_that_hangs_or_crashes_is_an_error_with_its_name() -> None:
    for other, message in (("hang", "no answer"), ("crash", "SIGSEGV")):
        result = check(
            "--build", "correct", "--reference-build", other, "--deadline", "1", "--json"
        )
        assert result.exit_code == 1
        (seed,) = report(result)["seeds"]
        assert (seed["verdict"], seed["outputs"]) == ("error", {})
        assert f"reference build {other}: " in seed["message"]
        assert message in seed["message"]


def test_an_output_without_a_judgement_is_told_in_words() -> None:
    reference = {"build": "other", "explanation": "not_judged"}
    table = references.table([{"outputs": {"y": {"reference": reference}}}])
    assert table is not None
    assert list(table.columns[1].cells) == ["not judged"]
