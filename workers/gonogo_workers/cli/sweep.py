"""`gonogo sweep`: run a kernel at the shapes and inputs where kernels break, with no server."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from gonogo import fields
from gonogo.cli.kit import show
from gonogo.errors import FieldError
from gonogo.spec.diagnoses import diagnosis_of
from gonogo.spec.verdicts import Verdict, worst
from gonogo_workers.cli import options
from gonogo_workers.cli.check import judged_run
from gonogo_workers.cli.named_builds import check_build, default_build

if TYPE_CHECKING:
    from gonogo.sweep.cases import Case
    from gonogo.sweep.search import Failure
    from gonogo_workers.local.runner import LocalRunner


@dataclass
class _Runs:
    """The runs of a sweep on one build, each judged as `gonogo check` does."""

    kernel: str
    """As the user named it."""
    runner: LocalRunner
    counts: Counter[str] = field(default_factory=Counter)
    rows: dict[tuple[str, int], options.Row] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """By message, the command of the first case that could not be run: the kernel isn't judged."""
    refused: FieldError | None = None

    def run(self, case: Case, *, is_brief: bool = False) -> options.Row:
        """Run a case and judge it; the fault is named unless it is brief."""
        from gonogo.judging.inputs import generate, quantise

        raw = generate(case.test, case.seed)
        given = quantise(case.test, raw)
        return judged_run(case.test, self.runner, case.seed, 0, raw, given, is_brief=is_brief)

    def command(self, case: Case) -> str:
        """Return the command that runs a case again."""
        return case.command(self.kernel, self.runner.resolved.executor.name, self.runner.build)

    def kind(self, case: Case) -> str:
        """Run a case; return its verdict and its wrong outputs, or "" where it isn't wrong."""
        from gonogo.sweep.search import failure_kind

        try:
            row = self.rows[case.key] = self.run(case, is_brief=True)
        except FieldError as refused:  # an emulated fault that there isn't in this shape
            self.refused = refused
            return ""
        self.counts[row["verdict"]] += 1
        if row["verdict"] == Verdict.error:
            self.errors.setdefault(str(row["message"]), self.command(case))
        return failure_kind(row)

    def report(self, failure: Failure) -> dict[str, Any]:
        """Return a failure as JSON: its smallest case is run again, to name the fault."""
        case = failure.smallest
        row = self.rows[case.key]
        if row["outputs"]:
            again = self.run(case)  # a kernel that isn't deterministic may be right this time
            row = again if again["verdict"] == row["verdict"] else row
        diagnosis = diagnosis_of(row["outputs"])
        return {
            "verdict": row["verdict"],
            "message": row.get("message") or (diagnosis and diagnosis.words),
            "test": case.test.canonical(),
            "seed": case.seed,
            "command": self.command(case),
            "count": len(failure.cases),
            "shapes": [list(other.test.shape) for other in failure.cases],
        }


def sweep(
    kernel: str = typer.Option(..., help=options.KERNEL.help),
    executor: str = typer.Option("emulator", help="How to run it, as for `gonogo check`."),
    build: str | None = typer.Option(None, help="Build to run; default: as for `gonogo check`."),
    seconds: float = typer.Option(60.0, help="Time to spend; the last run may take longer."),
    seed: int = typer.Option(0, min=0, help="The first seed, from which all cases follow."),
    parameters: str | None = options.PARAMETERS,
    numerics: str | None = options.NUMERICS,
    deadline: float | None = options.DEADLINE,
    as_json: bool = options.JSON,
) -> None:
    """Run a kernel at shapes and inputs where kernels break, and shrink what fails.

    Exit codes: 0 nothing fails, 1 the kernel fails, 2 usage, 3 no failure, but runs were lost to
    infrastructure.
    """
    from gonogo.kernels.registry import KERNELS, allow_installed, nameable, named
    from gonogo.spec.test_spec import TestSpec
    from gonogo.sweep.cases import cases
    from gonogo.sweep.search import sweep as search
    from gonogo_workers.local import runner as executors

    allow_installed()
    build = build or default_build(executor)
    check_build(executor, build)
    options.check_deadline(deadline)
    fields.number(seconds, "seconds", above=0)
    name = fields.choice(named(kernel), nameable(), "kernel")
    given = options.json_fields(parameters=parameters, numerics=numerics)
    base = TestSpec.parse({"kernel": name, "shape": list(KERNELS[name].example), **given})
    if not as_json:
        title = f"{kernel}, build {build} on {executor}, {seconds:g} s from seed {seed}"
        show.console().print(Text(title, style="bold"), soft_wrap=True)
    end = time.monotonic() + seconds
    with executors.load(executor, build, deadline_s=deadline, tell=show.tell) as runner:
        runs = _Runs(kernel, runner)
        broken = search(cases(base, seed), runs.kind, lambda: time.monotonic() >= end)
        failures = [runs.report(failure) for failure in broken.values()]
    if runs.refused and not runs.counts:
        raise runs.refused
    report: dict[str, Any] = {"verdict": worst(runs.counts).value, "counts": runs.counts}
    report |= {"failures": failures, "errors": runs.errors}
    if as_json:
        show.print_json(report)
    else:
        _print(report)
    raise typer.Exit(1 if failures else 3 if runs.errors or not runs.counts else 0)


def _print(report: dict[str, Any]) -> None:
    plain = partial(show.console().print, markup=False, highlight=False, soft_wrap=True)
    for failure in report["failures"]:
        shape = "x".join(map(str, failure["test"]["shape"]))
        text = f" in {failure['count']} of the drawn cases; the smallest is {shape}: "
        plain(Text.assemble(show.verdict(failure["verdict"]), text, str(failure["message"])))
        plain(f"  {failure['command']}")
    for message, command in report["errors"].items():
        plain(f"could not be run: {message}")
        plain(f"  {command}")
    plain(show.counts(report["counts"]))
