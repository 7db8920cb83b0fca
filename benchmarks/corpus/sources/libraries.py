"""Right kernels of libraries, run in the environments of `make libraries`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.corpus.run import TOLERANCES, Arrays, Label, Question, Run
from benchmarks.libraries import failures, runs
from benchmarks.libraries.cases import Case, case_named, cases, inputs
from benchmarks.libraries.environments import ENVIRONMENTS
from gonogo.arithmetic.formats import round_to

SEEDS = 2


class Libraries:
    """Each kernel of each library on every case of its kind."""

    def __init__(self) -> None:
        self._paths: Mapping[runs.Run, Path | str] = {}

    def runs(self, left_out: list[str]) -> Iterator[Run]:
        """Yield the runs of installed libraries."""
        for environment in ENVIRONMENTS:
            try:
                listing = runs.listing(environment.library)
            except RuntimeError as problem:
                left_out.append(f"{environment.library}: {problem}")
                continue
            for kernel in listing.kernels:
                for case in cases(kernel.kind):
                    if kernel.runs_on(case):
                        name = f"{environment.library}: {kernel.name}"
                        for seed in range(SEEDS):
                            yield Run("libraries", name, case.name, seed)

    def prepare(self, chosen: Sequence[Run], left_out: list[str]) -> list[Run]:
        """Run what isn't in the cache of outputs."""
        by_run = {run: library_run(run) for run in chosen}
        self._paths = runs.produce(by_run.values())
        problems = {self._paths[of] for of in by_run.values()}
        left_out += sorted(str(text) for text in problems if not isinstance(text, Path))
        return [run for run in chosen if isinstance(self._paths[by_run[run]], Path)]

    def question(self, run: Run) -> Question:
        """Return the question without an arithmetic."""
        return question(library_run(run).case, run.seed)

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the stored outputs, without those that a listed failure spoils.

        Raises ValueError where an output has another shape or format than the case's.
        """
        of = library_run(run)
        path = self._paths[of]
        assert isinstance(path, Path)
        listed = failures.listed(of.library, of.kernel, of.case, run.seed)
        spoiled = {name for failure in listed for name in failure.outputs}
        outputs = {}
        for name, values in runs.load(path).items():
            if (round_to(values, of.case.format) != values)[values == values].any():
                raise ValueError(f"{name} has values that aren't {of.case.format}")
            if name not in spoiled:
                outputs[name] = values
        reasons = [failure.reason for failure in listed if not failure.outputs]
        return outputs, Label("listed" if reasons else "right", reason="; ".join(reasons))


def library_run(run: Run) -> runs.Run:
    """Return the run of `benchmarks.libraries`."""
    library, _, kernel = run.kernel.partition(": ")
    case = case_named(run.case)
    for known in runs.listing(library).kernels:
        if known.name == kernel and known.runs_on(case):
            return runs.Run(library, kernel, known.case_of(case), run.seed)
    raise KeyError(f"{library} has no kernel {kernel} for {run.case}")


def question(case: Case, seed: int) -> Question:
    """Return the question of a case, with nothing named."""
    return Question(
        case.kind,
        inputs(case, seed),
        case.epsilon,
        {"input": case.format, "output": case.format},
        {"num_groups": case.groups} if case.groups else {},
        TOLERANCES[case.format],
    )
