"""`gonogo sweep`: run a kernel at the shapes and inputs where kernels break, with no server."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from gonogo import fields
from gonogo.spec.diagnoses import diagnosis_of
from gonogo.spec.verdicts import Verdict, worst
from gonogo_cli.kit import show
from gonogo_cli.local import options
from gonogo_cli.local.check import judged_run
from gonogo_cli.local.named_builds import check_build, default_build

if TYPE_CHECKING:
    from gonogo.sweep.cases import Case
    from gonogo.sweep.search import Failure
    from gonogo_workers.local.runner import LocalRunner


@dataclass
class _Runs:
    """The runs of a sweep on one build, each judged as `gonogo check` does."""

    runner: LocalRunner
    counts: Counter[str] = field(default_factory=Counter)
    rows: dict[tuple[str, int], options.Row] = field(default_factory=dict)
    errors: dict[str, Case] = field(default_factory=dict)
    """By its message, the first case that could not be run: it says nothing about the kernel."""

    def run(self, case: Case, *, is_brief: bool = False) -> options.Row:
        """Run a case and judge it; the fault is named unless it is brief."""
        from gonogo.judging.inputs import generate, quantise

        raw = generate(case.test, case.seed)
        given = quantise(case.test, raw)
        return judged_run(case.test, self.runner, case.seed, 0, raw, given, is_brief=is_brief)

    def named(self, failure: Failure) -> options.Row:
        """Return the row of the smallest case, with the fault of what is wrong in its numbers.

        Where a kernel gives other numbers the second time, it is the row of the first.
        """
        row = self.rows[failure.smallest.key]
        again = self.run(failure.smallest) if row["outputs"] else row
        return again if again["verdict"] == row["verdict"] else row

    def kind(self, case: Case) -> str:
        """Run a case; return its verdict and its wrong outputs, or "" where it isn't wrong."""
        row = self.rows[case.key] = self.run(case, is_brief=True)
        self.counts[row["verdict"]] += 1
        if row["verdict"] == Verdict.error:
            self.errors.setdefault(str(row["message"]), case)
            return ""
        if row["verdict"] not in show.LEVELS["hollow"]:
            return ""
        wrong = [
            name for name, entry in row["outputs"].items() if entry["verdict"] != Verdict.pass_
        ]
        return " ".join([row["verdict"], *wrong])


def sweep(
    kernel: str = options.KERNEL,
    executor: str = typer.Option("emulator", help="How to run it, as for `gonogo check`."),
    build: str | None = typer.Option(None, help="Build to run; default: as for `gonogo check`."),
    seconds: float = typer.Option(
        60.0, help="Time to spend; the last run is finished, and a hang lasts for its deadline."
    ),
    seed: int = typer.Option(0, min=0, help="The first seed: with it, the cases repeat."),
    parameters: str | None = options.PARAMETERS,
    numerics: str | None = options.NUMERICS,
    deadline: float | None = options.DEADLINE,
    as_json: bool = options.JSON,
) -> None:
    """Run a kernel at shapes and inputs where kernels break, and shrink what fails.

    Exit codes: 0 nothing fails, 1 the kernel fails, 2 usage, 3 no failure, but runs were lost to
    infrastructure.
    """
    from gonogo.kernels.registry import KERNELS, allow_installed
    from gonogo.spec.test_spec import TestSpec
    from gonogo.sweep.cases import cases
    from gonogo.sweep.search import sweep as search
    from gonogo_workers.local import runner as executors

    allow_installed()
    build = build or default_build(executor)
    check_build(executor, build)
    options.check_deadline(deadline)
    fields.number(seconds, "seconds", above=0)
    given = {"parameters": parameters, "numerics": numerics}
    usual = ",".join(map(str, KERNELS[fields.choice(kernel, KERNELS, "kernel")].example))
    base = TestSpec.parse(options.test_from_flags(kernel, usual, None, {}, given))
    end = time.monotonic() + seconds
    with executors.load(executor, build, deadline_s=deadline, tell=show.tell) as runner:
        runs = _Runs(runner)
        failures = search(cases(base, seed), runs.kind, lambda: time.monotonic() >= end)
        rows = [(failure, runs.named(failure)) for failure in failures.values()]
    command = ["gonogo", "check", "--kernel", kernel, "--executor", executor, "--build", build]
    report = {
        "verdict": worst(runs.counts).value,
        "counts": dict(runs.counts),
        "failures": [_failure(failure, row, command) for failure, row in rows],
        "errors": [
            {"message": message, "command": _repeated(case, command)}
            for message, case in runs.errors.items()
        ],
    }
    if as_json:
        show.print_json(report)
    else:
        _print(report, f"{kernel}, build {build} on {executor}, {seconds:g} s from seed {seed}")
    raise typer.Exit(1 if failures else 3 if runs.errors or not runs.counts else 0)


def _failure(failure: Failure, row: options.Row, command: list[str]) -> dict[str, Any]:
    diagnosis = diagnosis_of(row["outputs"])
    return {
        "verdict": row["verdict"],
        "outputs": row["outputs"],
        "message": row.get("message") or (diagnosis and diagnosis.words),
        "test": failure.smallest.test.canonical(),
        "seed": failure.smallest.seed,
        "command": _repeated(failure.smallest, command),
        "count": len(failure.cases),
        "shapes": [list(case.test.shape) for case in failure.cases],
    }


def _repeated(case: Case, command: list[str]) -> str:
    """Return the command that runs a case again."""
    test = case.test.canonical()
    shape = ",".join(map(str, case.test.shape))
    words = [*command, "--shape", shape, "--seed-start", str(case.seed)]
    for name in ("parameters", "inputs", "numerics"):
        if name in test:
            words += [f"--{name}", json.dumps(test[name])]
    return shlex.join(words)


def _print(report: dict[str, Any], title: str) -> None:
    out = show.console()
    out.print(Text(title, style="bold"), soft_wrap=True)
    for failure in report["failures"]:
        shape = "x".join(map(str, failure["test"]["shape"]))
        line = Text.assemble(
            show.verdict(failure["verdict"]), f" in {failure['count']} of the drawn cases"
        )
        out.print(line, f"; the smallest is {shape}: {failure['message']}", soft_wrap=True)
        out.print(f"  {failure['command']}", markup=False, highlight=False, soft_wrap=True)
    for error in report["errors"]:
        out.print(f"could not be run: {error['message']}", markup=False, soft_wrap=True)
        out.print(f"  {error['command']}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"{show.counts(report['counts'])}", highlight=False)
