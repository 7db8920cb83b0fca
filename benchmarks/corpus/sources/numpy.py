"""Readable NumPy kernels in several arithmetics, right ones and one-line edits of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from benchmarks.corpus.run import (
    Arrays,
    Label,
    Question,
    Run,
    errors_of,
    exact_outputs,
    size_of,
)
from benchmarks.corpus.sources.libraries import question
from benchmarks.libraries import failures, mutants
from benchmarks.libraries.cases import FORMATS, KINDS, Case, case_named, cases
from benchmarks.libraries.mutants import Mutant

LOCALIZED = ("a-row-a-step", "a-tile-a-step", "few-a-step", "stale-row")
"""Edits that change few elements by a step of the format or more."""


class Edited:
    """The sources of `benchmarks.libraries.mutants`: unedited on all cases, edits on some."""

    def runs(self, left_out: list[str]) -> Iterator[Run]:
        """Yield all runs: one seed each."""
        for source in (*mutants.SOURCES, *mutants.PEERS):
            for case in cases(source.kind):
                if source.suits(case.format):
                    yield Run("numpy", source.name, case.name, 0)
        for kind in KINDS:
            for number_format in FORMATS:
                for mutant, case in mutants.mutants(kind, number_format):
                    yield Run("numpy", mutant.source.name, case.name, 0, mutant.edit.name)

    def prepare(self, chosen: Sequence[Run], left_out: list[str]) -> Sequence[Run]:
        """Return all of them: a kernel whose unedited twin overflows is hidden."""
        return chosen

    def question(self, run: Run) -> Question:
        """Return the question without an arithmetic."""
        return question(case_named(run.case), run.seed)

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the outputs and the label."""
        case = case_named(run.case)
        if not run.edit:
            source = next(
                source
                for source in (*mutants.SOURCES, *mutants.PEERS)
                if (source.name, source.kind) == (run.kernel, run.kind)
            )
            listed = failures.listed("", source.name, case, run.seed)
            outputs = mutants.run(source, case, run.seed)
            spoiled = {name for failure in listed for name in failure.outputs}
            reasons = [failure.reason for failure in listed if not failure.outputs]
            unspoiled = {name: values for name, values in outputs.items() if name not in spoiled}
            size = "listed" if reasons else "right"
            return unspoiled, Label(size, source.group, reason="; ".join(reasons))
        mutant = mutants.mutant_named(f"{run.kernel}: {run.edit}", run.kind)
        outputs = mutants.run(mutant.source, case, run.seed, run.edit)
        return outputs, self._label(mutant, case, run, outputs)

    def _label(self, mutant: Mutant, case: Case, run: Run, outputs: Arrays) -> Label:
        twin = mutants.run(mutant.source, case, run.seed)
        exact, worst = worst_errors(case, run.seed)
        size = "hidden"
        is_finite = all(np.isfinite(values).all() for values in twin.values())
        if is_finite and (case.regime != "exact" or not mutants.is_no_op(mutant, case, run.seed)):
            size = size_of(outputs, twin, exact, worst, mutant.source.group)
        if size == "small" and mutants.is_no_op(mutant, case, run.seed):
            size = "hidden"
        if run.edit in LOCALIZED and size != "hidden":
            size = "localized"
        return Label(
            size,
            mutant.source.group,
            mutant.edit.term,
            mutant.edit.outputs,
            mutants.sizes(mutant, case, run.seed),
        )


@lru_cache(maxsize=64)
def worst_errors(case: Case, seed: int) -> tuple[Arrays, Mapping[str, float]]:
    """Return the function in float64 and the largest error of a right source for each output."""
    exact = exact_outputs(question(case, seed))
    if case.groups:
        exact["y"] = exact["y"].reshape(case.shape)
    worst: dict[str, float] = {}
    for source in (*mutants.SOURCES, *mutants.PEERS):
        if source.kind == case.kind and source.suits(case.format):
            if failures.listed("", source.name, case, seed):
                continue
            for name, error in errors_of(mutants.run(source, case, seed), exact).items():
                if np.isfinite(error):
                    worst[name] = max(worst.get(name, 0.0), error)
    return exact, worst
