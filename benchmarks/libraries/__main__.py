"""Judge kernels that nobody here wrote, right ones and mutants, with no arithmetic named.

`python -m benchmarks.libraries [--library torch] [--format fp32] [--kind rmsnorm_fw]
[--group right|mutants] [--max-elements N] [--seeds 2] [--jobs 2] [--run-only] [--dump FOLDER]
[--replay RUN]`.

It prints the acceptance table. Exit code 1 where a requested share isn't reached. `make libraries`
makes the environments first; a library without one is left out. On a machine with an NVIDIA GPU it
also runs CUDA, compiled and Triton kernels. To judge these elsewhere, run them with `--run-only`
and copy the cache folder's `libraries-outputs` to the other machine.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

from benchmarks.libraries import mutants
from benchmarks.libraries.cases import FORMATS, KINDS, SEEDS, Case, cases
from benchmarks.libraries.dump import dump
from benchmarks.libraries.environments import ENVIRONMENTS
from benchmarks.libraries.report import print_report
from benchmarks.libraries.runs import LibraryKernel, Run, listing, produce, run_named
from benchmarks.libraries.trials import (
    SOURCES_LIBRARY,
    Campaign,
    Outcome,
    RightRun,
    SeedTask,
    judge_seed,
)

MAX_JOBS = 16


def main(words: list[str] | None = None) -> int:
    """Run and judge; print the report, or one run, or write the dump."""
    options = _parser().parse_args(words)
    if options.replay:
        return _replay(options.replay)
    left_out: list[str] = []
    versions, kernels = _installed(left_out)
    wrong = _wrong(options) if options.group != "right" and options.library is None else []
    chosen = frozenset(
        kernel
        for kernel in kernels
        if options.group != "mutants" and options.library in (None, kernel.library)
    )
    runs = [
        run for kernel in kernels if wrong or kernel in chosen for run in _runs_of(kernel, options)
    ]
    outputs = produce(runs, options.jobs)
    rights = _complete(outputs, left_out)
    if options.run_only:
        print(f"ran {len(rights)} of {len(runs)} runs; left out:", *left_out, sep="\n  ")
        return 0
    if options.dump is not None:
        count = dump(options.dump, rights, wrong, options.seeds, versions)
        print(f"wrote {count} runs to {options.dump}")
        return 0
    campaign = Campaign()
    campaign.run(rights, chosen, wrong, options.seeds, options.jobs)
    limit = None if options.limit == 0 else options.limit
    is_reached = print_report(list(campaign.trials.values()), versions, left_out, limit)
    return 0 if is_reached else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.libraries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [environment.library for environment in ENVIRONMENTS]
    parser.add_argument("--library", choices=names, help="the right kernels of one library only")
    parser.add_argument("--format", choices=FORMATS, help="one format only")
    parser.add_argument("--kind", choices=tuple(KINDS), help="one kind of kernel only")
    parser.add_argument("--group", choices=("right", "mutants"), help="one group only")
    parser.add_argument("--max-elements", type=int, help="leave out tests with more elements")
    parser.add_argument("--seeds", type=_bounded(SEEDS), default=2, help="seeds of a test, 1 to 8")
    parser.add_argument("--jobs", type=_bounded(MAX_JOBS), default=2, help="processes, 1 to 16")
    parser.add_argument("--limit", type=int, default=0, help="name so many misses; 0: all")
    parser.add_argument(
        "--run-only", action="store_true", help="run the kernels into the cache; judge nothing"
    )
    parser.add_argument("--dump", type=Path, help="write all runs to this folder; judge nothing")
    parser.add_argument("--replay", metavar="RUN", help="judge one run, LIBRARY:KERNEL:CASE:SEED")
    return parser


def _bounded(maximum: int) -> Callable[[str], int]:
    """Return a parser of a number from 1 to a maximum."""

    def parse(text: str) -> int:
        number = int(text) if text.isdigit() else 0
        if not 1 <= number <= maximum:
            raise argparse.ArgumentTypeError(f"{text}: allowed: 1 to {maximum}")
        return number

    return parse


def _installed(
    left_out: list[str],
) -> tuple[dict[str, Mapping[str, str]], list[LibraryKernel]]:
    """Return versions and kernels of the installed libraries; note the others."""
    versions: dict[str, Mapping[str, str]] = {}
    kernels: list[LibraryKernel] = []
    for environment in ENVIRONMENTS:
        try:
            row = listing(environment.library)
        except RuntimeError as error:
            left_out.append(f"{environment.library}: {error}")
            continue
        versions[environment.library] = row.versions
        kernels += row.kernels
    return versions, kernels


def _wrong(options: argparse.Namespace) -> list[tuple[mutants.Mutant, Case]]:
    return [
        pair
        for kind in KINDS
        if options.kind in (None, kind)
        for number_format in FORMATS
        if options.format in (None, number_format)
        for pair in mutants.mutants(kind, number_format)
        if _is_small(pair[1], options)
    ]


def _runs_of(kernel: LibraryKernel, options: argparse.Namespace) -> list[Run]:
    if options.kind not in (None, kernel.kind):
        return []
    return [
        Run(kernel.library, kernel.name, kernel.case_of(case), seed)
        for case in cases(kernel.kind, options.format)
        if kernel.runs_on(case) and _is_small(case, options)
        for seed in range(options.seeds)
    ]


def _is_small(case: Case, options: argparse.Namespace) -> bool:
    return options.max_elements is None or prod(case.shape) <= options.max_elements


def _complete(outputs: Mapping[Run, Path | str], left_out: list[str]) -> dict[Run, Path]:
    """Return the runs that have outputs; note the problems of the others."""
    problems: dict[tuple[str, str], list[Run]] = {}
    rights = {}
    for run, result in outputs.items():
        if isinstance(result, Path):
            rights[run] = result
        else:
            # numbers of nodes and addresses differ from run to run
            problems.setdefault((run.library, re.sub(r"\d{4,}", "N", result)), []).append(run)
    for (library, problem), runs in sorted(problems.items()):
        names = sorted({f"{run.case.kind} {run.kernel} in {run.case.format}" for run in runs})
        left_out.append(f"{library}, {len(runs)} runs of {', '.join(names)}: {problem}")
    return rights


def _replay(name: str) -> int:
    """Judge one run and print everything about it."""
    try:
        run = run_named(name)
        if run.library == SOURCES_LIBRARY:
            chosen: tuple[mutants.Mutant, ...] = (mutants.mutant_named(run.kernel, run.case.kind),)
        else:
            chosen = ()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    _, kernels = _installed([])
    runs = [
        Run(kernel.library, kernel.name, kernel.case_of(run.case), run.seed)
        for kernel in kernels
        if kernel.runs_on(run.case)
    ]
    rights = tuple(
        RightRun(other, path, other.name == name)
        for other, path in produce(runs).items()
        if isinstance(path, Path)
    )
    outcomes = judge_seed(SeedTask(run.case, run.seed, rights, chosen))
    for outcome in outcomes:
        if outcome.run.name == name:
            _print_outcome(outcome)
            return 0
    print(f"{name} gave no outputs: is the library installed, and has it this kernel?")
    return 2


def _print_outcome(outcome: Outcome) -> None:
    print(outcome.run.name)
    for name, error in outcome.errors.items():
        worst = outcome.worst.get(name)
        print(f"  {name}: error {error:.6g}, worst right kernel {worst}")
    if outcome.run.library == SOURCES_LIBRARY:
        print(f"  {outcome.changed} elements differ from the unedited kernel's")
        print(f"  no-op in exact arithmetic: {outcome.is_no_op}")
    for reason in (*outcome.reasons, *((outcome.problem,) if outcome.problem else ())):
        print(f"  {reason}")
    if outcome.judgment is None:
        print("  not judged")
        return
    judgment = outcome.judgment
    print(f"  {judgment.verdict}, {judgment.explanation}, arithmetic {judgment.arithmetic}")
    print(judgment.words or "  no words: a pass")
    for name, statistics in judgment.statistics.items():
        print(f"  {name}: {_numbers(statistics)}")


def _numbers(statistics: Mapping[str, object]) -> str:
    parts: Sequence[str] = [
        f"{key} {value:.4g}" for key, value in statistics.items() if isinstance(value, int | float)
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
