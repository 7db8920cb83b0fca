"""Judge right kernels and mutants seed by seed, with all facts that the acceptance table needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.libraries import mutants
from benchmarks.libraries.cases import Case, Doubles, Tensors
from benchmarks.libraries.failures import listed
from benchmarks.libraries.judge import (
    SUSPECT,
    UNEXPLAINED,
    Judgment,
    can_judge,
    judge_outputs,
    pooled,
)
from benchmarks.libraries.mutants import Mutant
from benchmarks.libraries.runs import LibraryKernel, Run, load
from gonogo.numerics.formats import round_to

SOURCES_LIBRARY: Final = "sources"
"""The library of mutants, in the names of runs."""
JUDGE_RAISED: Final = "the judge raised"
"""The start of a problem that is the product's."""


@dataclass(frozen=True)
class RightRun:
    """A run of a library's kernel: where its outputs lie, and whether to judge them."""

    run: Run
    path: Path
    is_judged: bool = True


@dataclass(frozen=True)
class SeedTask:
    """Everything on the same inputs: a case and a seed."""

    case: Case
    seed: int
    rights: tuple[RightRun, ...]
    mutants: tuple[Mutant, ...]


@dataclass(frozen=True)
class Outcome:
    """A kernel on a seed.

    Attributes:
        run: names the kernel, the case and the seed.
        errors: output -> largest absolute error against float64.
        worst: output -> the largest such error of a right kernel on the same inputs: a library's,
            a peer's (mutants.PEERS), or the mutant's unedited twin.
        changed: elements of a mutant that differ from its unedited twin's.
        is_no_op: True if the edit changes nothing in exact arithmetic on these inputs.
        sizes: output -> how far a mutant's edit changes it (mutants.sizes).
        judgment: None where nothing was judged.
        reasons: the listed failures of a right kernel.
        problem: why there is nothing to judge.
    """

    run: Run
    errors: Mapping[str, float]
    worst: Mapping[str, float]
    changed: int = 0
    is_no_op: bool = False
    judgment: Judgment | None = None
    reasons: tuple[str, ...] = ()
    problem: str | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)

    @property
    def excess(self) -> float:
        """Return the largest error in units of the worst right kernel's."""
        return max(
            (error / worst if (worst := self.worst.get(name)) else float(error > 0) * 1e9)
            for name, error in self.errors.items()
        )


@dataclass
class Trial:
    """A kernel on a case: its seeds, and for a mutant its source and edit."""

    library: str
    kernel: str
    case: Case
    mutant: Mutant | None = None
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def judgments(self) -> list[Judgment]:
        """Return the judgments of the seeds that were judged."""
        return [row.judgment for row in self.outcomes if row.judgment is not None]

    @property
    def explanation(self) -> str | None:
        """Return what the seeds together say; None where nothing was judged."""
        return pooled(self.judgments) if self.judgments else None

    @property
    def is_flagged(self) -> bool:
        """Return whether the test ends unexplained or suspect."""
        return self.explanation in (UNEXPLAINED, SUSPECT)

    @property
    def excess(self) -> float:
        """Return the largest error over all seeds, in units of the worst right kernel's."""
        return max((row.excess for row in self.outcomes if row.problem is None), default=0.0)

    @property
    def changed(self) -> int:
        """Return the largest number of changed elements of a seed."""
        return max((row.changed for row in self.outcomes), default=0)

    @property
    def is_no_op(self) -> bool:
        """Return whether the edit changes nothing in exact arithmetic, on any seed."""
        return all(row.is_no_op for row in self.outcomes)


def judge_seed(task: SeedTask) -> list[Outcome]:
    """Judge every kernel of a task."""
    with np.errstate(all="ignore"):
        worst = mutants.peer_errors(task.case, task.seed) if task.mutants else {}
        rows = []
        for right in task.rights:
            outcome, outputs = _measured(right)
            if outcome.problem is None and not outcome.reasons:
                for name, error in outcome.errors.items():
                    if np.isfinite(error):
                        worst[name] = max(worst.get(name, 0.0), error)
            rows.append((right, outcome, outputs))
        outcomes = []
        for right, outcome, outputs in rows:
            if right.is_judged and outcome.problem is None and can_judge(task.case.kind):
                outcome = _judged_right(outcome, outputs, worst)
            outcomes.append(outcome)
        for mutant in task.mutants:
            outcomes.append(_judged_mutant(mutant, task.case, task.seed, worst))
        return outcomes


def _measured(right: RightRun) -> tuple[Outcome, Tensors]:
    run = right.run
    outputs = load(right.path)
    reference = mutants.reference(run.case, run.seed)
    problem = _problem_of(outputs, reference, run.case)
    failures = listed(run.library, run.kernel, run.case, run.seed)
    spoiled = {name for failure in failures for name in failure.outputs or reference}
    outputs = {name: a for name, a in outputs.items() if name in reference and name not in spoiled}
    errors = {} if problem else errors_of(outputs, reference)
    reasons = tuple(failure.reason for failure in failures if not failure.outputs)
    return Outcome(run, errors, {}, reasons=reasons, problem=problem), outputs


def _problem_of(outputs: Tensors, reference: Mapping[str, Doubles], case: Case) -> str | None:
    """Return why outputs can't be those of the case's kind and format, or None."""
    for name, expected in reference.items():
        if name not in outputs:
            return f"it has no {name}"
        if outputs[name].shape != expected.shape:
            return f"{name} has the shape {outputs[name].shape} instead of {expected.shape}"
        values = outputs[name][np.isfinite(outputs[name])]
        if (round_to(values, case.format) != values).any():
            return f"{name} has values that aren't {case.format}"
    return None


def errors_of(outputs: Tensors, reference: Mapping[str, Doubles]) -> dict[str, float]:
    """Return the largest absolute error of each output; infinite where a value isn't finite."""
    errors = {}
    for name, values in outputs.items():
        largest = float(np.abs(values.astype(np.float64) - reference[name]).max())
        errors[name] = largest if np.isfinite(largest) else np.inf
    return errors


def _judgment(case: Case, seed: int, outputs: Tensors) -> tuple[Judgment | None, str | None]:
    """Return the judgment or, where the product raises, its error: a report must name it."""
    try:
        return judge_outputs(case, seed, outputs), None
    except Exception as error:
        return None, f"{JUDGE_RAISED} {type(error).__name__}: {error}"[:300]


def _judged_right(outcome: Outcome, outputs: Tensors, worst: Mapping[str, float]) -> Outcome:
    run = outcome.run
    judgment = problem = None
    if outputs and not outcome.reasons:
        judgment, problem = _judgment(run.case, run.seed, outputs)
    return replace(outcome, worst=dict(worst), judgment=judgment, problem=problem)


def _judged_mutant(mutant: Mutant, case: Case, seed: int, worst: Mapping[str, float]) -> Outcome:
    run = Run(SOURCES_LIBRARY, mutant.name, case, seed)
    twin = mutants.run(mutant.source, case, seed)
    outputs = mutants.run(mutant.source, case, seed, mutant.edit.name)
    reference = mutants.reference(case, seed)
    if not all(np.isfinite(values).all() for values in twin.values()):
        return Outcome(run, {}, {}, problem="its unedited twin overflows")
    limits = {
        name: max(error, worst.get(name, 0.0)) for name, error in errors_of(twin, reference).items()
    }
    errors = errors_of(outputs, reference)
    changed = sum(int((outputs[name] != twin[name]).sum()) for name in twin)
    is_no_op = mutants.is_no_op(mutant, case, seed)
    judgment = problem = None
    if changed and can_judge(case.kind):
        judgment, problem = _judgment(case, seed, outputs)
    sizes = mutants.sizes(mutant, case, seed)
    return Outcome(run, errors, limits, changed, is_no_op, judgment, problem=problem, sizes=sizes)


def is_judge_error(outcome: Outcome) -> bool:
    """Return whether the product failed to judge a seed."""
    return outcome.problem is not None and outcome.problem.startswith(JUDGE_RAISED)


class Campaign:
    """All trials, judged seed after seed: a mutant that is unexplained needs no more seeds."""

    def __init__(self) -> None:
        self.trials: dict[tuple[str, str, str], Trial] = {}

    def run(
        self,
        rights: Mapping[Run, Path],
        judged: frozenset[LibraryKernel],
        wrong: Sequence[tuple[Mutant, Case]],
        seeds: int,
        jobs: int,
    ) -> None:
        """Judge everything.

        rights: outputs of libraries, of all seeds. judged: the kernels to judge; the others only
        say how far off right kernels are.
        """
        names = {(kernel.library, kernel.kind, kernel.name) for kernel in judged}
        for seed in range(seeds):
            tasks = list(self._tasks(rights, names, wrong, seed))
            for number, outcomes in enumerate(parallel(tasks, jobs)):
                for outcome in outcomes:
                    self._add(outcome)
                if number % 20 == 19:
                    done = f"seed {seed}: judged {number + 1} of {len(tasks)} inputs"
                    print(done, file=sys.stderr, flush=True)

    def _tasks(
        self,
        rights: Mapping[Run, Path],
        names: set[tuple[str, str, str]],
        wrong: Sequence[tuple[Mutant, Case]],
        seed: int,
    ) -> Iterator[SeedTask]:
        by_case: dict[str, tuple[Case, list[RightRun], list[Mutant]]] = {}
        for mutant, case in wrong:
            trial = self.trials.get((SOURCES_LIBRARY, mutant.name, case.name))
            if trial is None or not is_settled(trial):
                by_case.setdefault(case.name, (case, [], []))[2].append(mutant)
        for run, path in rights.items():
            if run.seed != seed:
                continue
            is_judged = (run.library, run.case.kind, run.kernel) in names
            if is_judged or run.case.name in by_case:
                case = replace(run.case, fixed_epsilon=None)
                group = by_case.setdefault(run.case.name, (case, [], []))
                group[1].append(RightRun(run, path, is_judged))
        for case, right_runs, some in by_case.values():
            yield SeedTask(case, seed, tuple(right_runs), tuple(some))

    def _add(self, outcome: Outcome) -> None:
        run = outcome.run
        trial = self.trials.setdefault(
            (run.library, run.kernel, run.case.name), Trial(run.library, run.kernel, run.case)
        )
        if run.library == SOURCES_LIBRARY and trial.mutant is None:
            trial.mutant = mutants.mutant_named(run.kernel, run.case.kind)
        trial.outcomes.append(outcome)


def is_settled(trial: Trial) -> bool:
    """Return whether more seeds can't change what is said of a mutant."""
    if any(row.problem is not None for row in trial.outcomes):
        return True
    levels = {judgment.explanation for judgment in trial.judgments}
    return UNEXPLAINED in levels


def parallel(tasks: Sequence[SeedTask], jobs: int) -> Iterable[list[Outcome]]:
    """Yield the outcomes of each task, in order, from so many processes."""
    if jobs <= 1:
        yield from map(judge_seed, tasks)
        return
    os.environ["NUMBA_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(judge_seed, tasks, chunksize=1)
