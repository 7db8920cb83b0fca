"""`gonogo gauge`: measure tests with right and wrong kernels, and advise their tolerance."""

from __future__ import annotations

import tomllib
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gonogo.cli.kit import show
from gonogo.cli.kit.fail_on import FailOn, fail_on_option
from gonogo.cli.kit.option_groups import grouped
from gonogo.errors import FieldError, JobError
from gonogo_workers.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gonogo.gauge.kernels import Part
    from gonogo.gauge.measure import Drawn, Row
    from gonogo.gauge.summary import MeasuredTest, TriedSummary
    from gonogo.gauge.tests_file import Entry

SEEDS = 3
"""By default: a logic fault shows in one seed; three tell a fault that shows on some seeds from one
that does on all."""

SEARCH_SEEDS = 1
"""For each of the other inputs that are tried: they are advice to try, not a measurement."""


FAIL_ON = fail_on_option(
    "For a gauged test, hollow: a wrong kernel passes it; fail: a right one fails it; the others:"
    " both."
)


@grouped
def gauge(
    test: options.TestFlags,
    file: Path | None = typer.Argument(
        None, help="YAML, JSON or TOML file of many tests; else one test by flags."
    ),
    executor: str = typer.Option(
        "emulator",
        help="What runs --build and --wrong-build; the emulator's own kernels are always measured.",
    ),
    build: list[str] = typer.Option(
        [], help="Another build that is right and must pass; repeatable."
    ),
    wrong_build: list[str] = typer.Option(
        [], "--wrong-build", help="Another build that is wrong and must fail; repeatable."
    ),
    seeds: int = typer.Option(SEEDS, min=1, max=1000, help="How many seeds for each kernel."),
    seed_start: int = typer.Option(0, "--seed-start", min=0, help="The first seed."),
    tolerance: str | None = typer.Option(
        None, help='The whole tolerance as JSON, such as {"dx": {"rtol": 0.001, "atol": 0.02}}.'
    ),
    gate: list[str] = typer.Option(
        [],
        "--gate",
        help="A public gate to apply to the same runs, such as kernelbench; repeatable (default:"
        " all; manual: gauge).",
    ),
    search: bool = typer.Option(True, help="Where no tolerance works, try other inputs."),
    deadline: float | None = options.DEADLINE,
    fail_on: FailOn = FAIL_ON,
    as_json: bool = options.JSON,
) -> None:
    """Measure a test with right and wrong kernels, and advise its tolerance.

    Exit codes: 0 sharp and without false alarms, 1 otherwise (by --fail-on), 2 usage, 3
    infrastructure.
    """
    import gonogo.settings
    from gonogo.gauge.gates import named
    from gonogo.gauge.tests_file import parse
    from gonogo.kernels.registry import allow_installed
    from gonogo_workers.executors import registry

    allow_installed()
    options.check_deadline(deadline)
    named(gate, "gate")
    limit = gonogo.settings.load().max_elements
    options_of_entry = {
        "seed_start": seed_start,
        "executor": executor,
        "builds": build,
        "wrong_builds": wrong_build,
        "gates": gate,
    }
    if file is not None:
        if gate:
            reason = "is given by the file: write `gates` there, or leave the file out"
            raise FieldError("gate", gate[0], reason)
        if test.shape is not None:
            reason = "is given by the file: leave it out, or the file"
            raise FieldError("shape", test.shape, reason)
        entries = parse(_document(file), seeds=seeds, max_elements=limit)
    else:
        document = _test(test, tolerance)
        entries = parse([{"test": document, **options_of_entry}], seeds=seeds, max_elements=limit)
    for entry_ in entries:  # one that runs no build isn't asked for later
        registry.find(entry_.executor)
    results = []
    with show.progress(show.console(stderr=True)) as bars:
        for entry_ in entries:
            task = bars.add_task(entry_.name, total=None, note="", visible=not as_json)

            def tell(total: int, name: str, task: Any = task) -> None:
                if name:
                    bars.update(task, total=total, advance=1, note=name)
                else:  # from the start, also with other inputs
                    bars.update(task, total=total, completed=0)

            results.append((entry_, *gauged(entry_, search=search, deadline=deadline, tell=tell)))
    _finish(results, single=file is None, as_json=as_json, fail_on=fail_on)


def _test(flags: options.TestFlags, tolerance: str | None) -> dict[str, Any]:
    """Return the test of the flags. Raises FieldError."""
    if flags.shape is None:
        limit = "such as --shape 3,273,1,8462, or a file of tests"
        raise FieldError("test.shape", None, "is required", limit=limit)
    test = flags.test(flags.shape)
    if tolerance is not None:
        if given := test.get("tolerance"):
            reason = f"is given twice: leave it out, or --{next(iter(given))}"
            raise FieldError("tolerance", tolerance, reason)
        test["tolerance"] = options.json_flag(tolerance, "test.tolerance")
    return test


Measured = tuple["Entry", "MeasuredTest", "list[TriedSummary]"]


def gauged(
    entry: Entry,
    *,
    search: bool,
    deadline: float | None,
    tell: Callable[[int, str], None] = lambda _total, _name: None,
) -> tuple[MeasuredTest, list[TriedSummary]]:
    """Measure one test, and with other inputs too where no tolerance works with its own."""
    from gonogo.gauge import elsewhere, report

    here = report.report(entry.test, _rows(entry, deadline, tell), entry.gates)
    if not search or here.advice.works:
        return here, []
    tried = []
    for where in elsewhere.candidates(entry.test):
        test = entry.test.replace(inputs=where.inputs)
        other = entry.replace(test=test, seeds=min(entry.seeds, SEARCH_SEEDS))

        def report_progress(total: int, name: str, inputs: str = where.name) -> None:
            tell(total, name and f"{name}, {inputs}")

        rows = _rows(other, deadline, report_progress)
        there = report.report(other.test, rows, entry.gates)
        tried.append(elsewhere.compared(here, where, there))
    return here, tried


def _rows(entry: Entry, deadline: float | None, tell: Callable[[int, str], None]) -> list[Row]:
    """Every part on every seed. A seed's arrays are drawn once."""
    from gonogo.gauge import kernels, measure
    from gonogo_workers.local import runner as executors

    test = entry.test
    right = kernels.right(test) if kernels.stands_for(entry.executor, entry.builds) else []
    parts = [*right, *kernels.wrong(test)]
    for kind, names in ((kernels.Kind.go, entry.builds), (kernels.Kind.no_go, entry.wrong_builds)):
        parts += [kernels.foreign(test, entry.executor, name, kind) for name in names]
    rows: list[Row] = []
    total = entry.seeds * len(parts)
    tell(total, "")
    with ExitStack() as stack:
        runners = [
            stack.enter_context(
                executors.load(part.executor, part.build, deadline_s=deadline, tell=show.tell)
            )
            for part in parts
        ]
        for seed in range(entry.seed_start, entry.seed_start + entry.seeds):
            drawn = measure.Drawn.of(test, seed)
            for part, runner in zip(parts, runners, strict=True):
                rows.append(_row(part, runner, drawn))
                tell(total, part.name)
    return rows


def _row(part: Part, runner: Any, drawn: Drawn) -> Row:
    """One run, measured; a kernel that fails without numbers gives a row without outputs."""
    from gonogo.errors import KernelOutputError
    from gonogo.gauge import measure
    from gonogo_workers.executors.base import ExecutorFailure, Stopped

    given = drawn.as_given_to(part).given
    try:
        if part.unsure and runner.position == 0:  # what ran before may be the fault
            runner.run(part.test, given, seed=drawn.seed)
        outputs = runner.run(part.test, given, seed=drawn.seed)
        return measure.measured(
            part, drawn, outputs, arithmetic=runner.arithmetic, produced=runner.produced
        )
    except Stopped:
        raise
    except (ExecutorFailure, KernelOutputError) as problem:
        verdict = problem.verdict if isinstance(problem, ExecutorFailure) else "error"
        return measure.without_numbers(part, drawn.seed, str(verdict), str(problem))


def _document(path: Path) -> Any:
    """Read a file by its ending: .json, .toml, else YAML. Raises JobError when it can't be read."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix == ".json":
            return options.json_flag(text, str(path))
        import yaml

        return yaml.safe_load(text)
    except ModuleNotFoundError as problem:
        raise JobError(
            f"{path} needs the package pyyaml; a .json or .toml file needs none"
        ) from problem
    except (OSError, RecursionError, ValueError) as problem:
        raise JobError(f"{path} can't be read: {problem}") from problem
    except Exception as problem:
        if type(problem).__module__.startswith("yaml"):
            raise JobError(f"{path} isn't YAML: {problem}") from problem
        raise


def _finish(results: Sequence[Measured], *, single: bool, as_json: bool, fail_on: FailOn) -> None:
    """Print the results, and end the command."""
    from gonogo.flakiness.grades import Sharpness
    from gonogo_workers.cli import gauge_report as tables

    if as_json:
        documents = [
            {"name": entry.name, **asdict(result), "elsewhere": list(map(asdict, tried))}
            for entry, result, tried in results
        ]
        show.print_json(documents[0] if single else {"tests": documents})
    else:
        tables.show_gauges(results, single=single)
    hollow = any(result.sharpness is not Sharpness.sharp for _, result, _ in results)
    alarms = [result.false_alarms for _, result, _ in results]
    alarmed = any(rate.count or not rate.of for rate in alarms)
    broken = any(result.broken for _, result, _ in results)
    level = {FailOn.hollow: hollow, FailOn.fail: alarmed}
    failed = level.get(fail_on, hollow or alarmed or broken) or not results
    raise typer.Exit(int(failed))
