"""`gonogo check`: run a test here, with no server, and judge every seed."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from gonogo.cli.kit import show
from gonogo.cli.kit.fail_on import FAIL_ON, FailOn
from gonogo.cli.kit.option_groups import grouped, refuse_others
from gonogo.errors import FieldError
from gonogo_workers.cli import options, selections
from gonogo_workers.cli.named_builds import check_build, check_selection, default_build
from gonogo_workers.cli.references import References

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec
    from gonogo_workers.local.runner import LocalRunner


OF_A_SELECTION = (
    *("executor", "build", "suite", "words", "shuffle", "stage"),
    *("seeds", "seed_start", "repeats", "deadline", "fail_on", "as_json"),
)
"""The parameters that mean something to gtest and pytest, whose tests are written already."""


def _count(text: str) -> int:
    """Return how many seeds. Raises a usage error, which says what `submit` alone can do."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        elsewhere = "; gonogo submit has sequential seeds" if ":" in text else ""
        raise typer.BadParameter(f"must be an integer of at least 1; got {text!r}{elsewhere}")
    return count


@grouped
def check(
    ctx: typer.Context,
    flags: options.TestFlags,
    build: str | None = typer.Option(
        None,
        help="Build to run; default: correct on the emulator, torch-eager, ttnn. "
        "`gonogo kernels show KERNEL` lists the emulator's.",
    ),
    executor: str = typer.Option(
        "emulator",
        help="How to run it: emulator, torch, ttnn, gtest, pytest, or one of GONOGO_EXECUTORS.",
    ),
    suite: str | None = selections.SUITE,
    words: str | None = selections.FILTER,
    shuffle: str | None = selections.SHUFFLE,
    stage: list[str] = selections.STAGE,
    seeds: int = typer.Option(1, parser=_count, metavar="INTEGER", help="How many seeds."),
    seed_start: int = typer.Option(0, "--seed-start", min=0, help="The first seed."),
    repeats: int = typer.Option(1, min=1, help="Runs of each seed."),
    reference_build: str | None = options.REFERENCE_BUILD,
    exact: bool = typer.Option(
        False, "--exact", help="Exact inputs: right kernels agree on them to the bit."
    ),
    context: str | None = typer.Option(
        None,
        help="Tests that run first in the same process, as a job has them: "
        '{"name": "suite", "before": [{"kernel": ...}]}.',
    ),
    deadline: float | None = options.DEADLINE,
    fail_on: FailOn = FAIL_ON,
    as_json: bool = options.JSON,
) -> None:
    """Run a test here and judge every seed; with gtest or pytest, run tests that exist already.

    Exit codes: 0 as hoped, 1 as bad as --fail-on (a red test, or none at all, is), or suspect with
    every seed, 2 usage, 3 infrastructure.
    """
    import gonogo.settings
    from gonogo.kernels.registry import allow_installed
    from gonogo.spec.executors import EMULATOR
    from gonogo.spec.regimes import check_exact_executor
    from gonogo.spec.selections import Selection, check_executor
    from gonogo.spec.test_spec import TestSpec
    from gonogo.workloads import check_emulated
    from gonogo_workers.executors.limits import known as known_limits
    from gonogo_workers.local import runner as executors
    from gonogo_workers.messages.chunk import ISOLATED, parse_context

    allow_installed()
    is_selection = selections.requested(executor, suite, words, shuffle, stage)
    if is_selection:
        refuse_others(ctx, OF_A_SELECTION, selections.NO_KERNEL)
    build = build or default_build(executor)
    check_build(executor, build)
    _check_counts(seeds, seed_start, deadline)
    if is_selection:
        selection = Selection.parse(selections.from_flags(suite, words, shuffle, stage))
        check_executor(selection, executor)
        check_selection(executor, build, selection)
        iterations = range(seed_start, seed_start + seeds)
        selections.check(
            selection,
            executor=executor,
            build=build,
            iterations=iterations,
            repeats=repeats,
            deadline=deadline,
            as_json=as_json,
            fail_on=fail_on,
        )
    if flags.shape is None:
        raise FieldError("test.shape", None, "is required", limit="such as --shape 3,273,1,8462")
    if exact and flags.inputs is not None:
        raise FieldError("exact", True, "draws all tensors itself", limit="no --inputs beside it")
    data = flags.test(flags.shape)
    if exact:
        data["inputs"] = {"regime": "exact"}
    most = gonogo.settings.load().max_elements
    test = TestSpec.parse(data, max_elements=most)
    check_executor(test, executor)
    check_exact_executor(test.inputs, executor, test.kernel, test.features, "test")
    if executor == EMULATOR:
        for path, named in (("build", build), ("reference_build", reference_build)):
            if named is not None:
                check_emulated(named, test, path)
    name, before = parse_context(options.json_flag(context, "context") or ISOLATED, most)

    chosen = range(seed_start, seed_start + seeds)
    with ExitStack() as stack:
        compared: References | None = None
        if reference_build is not None:
            compared = References(
                test,
                stack.enter_context(
                    executors.load(executor, reference_build, deadline_s=deadline, tell=show.tell)
                ),
                chosen,
            )
            compared.prepare(seed_start)
        runner = stack.enter_context(
            executors.load(executor, build, deadline_s=deadline, tell=show.tell)
        )
        runner.precede(before, seed_start)
        work = ((seed, repeat) for seed in chosen for repeat in range(repeats))
        rows = _judged(test, runner, work, seeds * repeats, compared, quiet=as_json)
    beside = f" compared with {reference_build}" if reference_build is not None else ""
    shape = "x".join(map(str, test.shape))
    title = f"{test.kernel} {shape}, build {build}{beside} on {executor}"
    title += f", {seeds} seed{'s' * (seeds > 1)}"
    title += f" after {name}" * bool(before)
    report = options.summary(rows)
    limits = [
        limit.words for limit in known_limits(test.canonical(), build, runner.resolved.environment)
    ]
    if limits:
        report["known_limits"] = limits
    options.finish(report, test, title, as_json=as_json, fail_on=fail_on)


def _check_counts(seeds: int, seed_start: int, deadline: float | None) -> None:
    """Raises FieldError for seeds beyond the largest, and for a deadline that is none."""
    from gonogo.judging.inputs import MAX_SEED

    if seed_start + seeds > MAX_SEED:
        raise FieldError(
            "seeds", seed_start + seeds - 1, "is above the largest seed", limit=f"< {MAX_SEED}"
        )
    options.check_deadline(deadline)


def _judged(
    test: TestSpec,
    runner: LocalRunner,
    work: Iterator[tuple[int, int]],
    total: int,
    compared: References | None,
    *,
    quiet: bool,
) -> list[options.Row]:
    """Return a row per (seed, repeat)."""
    from gonogo.judging.inputs import generate, quantise

    rows: list[options.Row] = []
    # the emulator runs in this process, which is a child of its own for every check
    here = uuid.uuid4().hex
    with show.progress(show.console(stderr=True)) as bars:
        task = bars.add_task(runner.build, total=total, note="", visible=not quiet)
        drawn: tuple[int, Any, Any] | None = None
        for seed, repeat in work:
            if drawn is None or drawn[0] != seed:
                raw = generate(test, seed)
                drawn = (seed, raw, quantise(test, raw))
            row = judged_run(test, runner, seed, repeat, drawn[1], drawn[2], compared)
            row["host_run"] = row["host_run"] or here
            rows.append(row)
            bars.update(task, advance=1)
    return rows


def judged_run(
    test: TestSpec,
    runner: LocalRunner,
    seed: int,
    repeat: int,
    raw: Any,
    given: Any,
    compared: References | None = None,
    is_brief: bool = False,
) -> options.Row:
    """Judge one run. A kernel that fails gives the row its verdict; other seeds still run.

    is_brief: without the fault of a wrong output and the limits of a right one, which take longest.
    """
    from gonogo.errors import KernelOutputError
    from gonogo.judging.judging import judge
    from gonogo_workers.executors.base import ExecutorFailure, Stopped
    from gonogo_workers.messages.rows import Place, failed, judged

    work, place = (seed, repeat), Place(None, runner.host_run, runner.position)
    if compared is not None and (why := compared.failure(seed, runner)) is not None:
        return failed(work, Place(None, None, None), None, "error", why)
    start = time.perf_counter()
    duration_ms: float | None = None
    try:
        outputs = runner.run(test, given, seed=seed)
        duration_ms = (time.perf_counter() - start) * 1e3
        judgement = judge(
            test,
            raw,
            given,
            outputs,
            arithmetic=runner.arithmetic,
            produced=runner.produced,
            on_wormhole=runner.on_wormhole,
            with_limits=not is_brief,
            with_faults=not is_brief,
        )
        if compared is not None:
            judgement = compared.compare(judgement, seed, raw, given, outputs)
    except Stopped:
        raise
    except ExecutorFailure as problem:
        if problem.log_tail:
            print(problem.log_tail.rstrip(), file=sys.stderr)
        duration_ms = (time.perf_counter() - start) * 1e3
        return failed(work, place, duration_ms, problem.verdict, str(problem))
    except KernelOutputError as problem:
        return failed(work, place, duration_ms, "error", str(problem))
    return judged(work, place, duration_ms, judgement)
