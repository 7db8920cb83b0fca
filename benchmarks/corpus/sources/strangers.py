"""LayerNorms by someone who had not seen the judge: orders, formulas, stores and faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from benchmarks.corpus.run import Arrays, Label, Question, Run, errors_of, exact_outputs, size_of
from benchmarks.strangers.cases import CASES, Case
from benchmarks.strangers.plugin import BY_NAME, Stranger
from benchmarks.strangers.rights import BASES, RIGHTS
from benchmarks.strangers.wrongs import WRONGS
from gonogo.judging.inputs import generate, quantise

RUNS_BEFORE = 3
"""A race shows in the last run of four; a stale value is the run before's."""
RANDOM = "it rounds at random"
COARSE = "it stores fewer bits than the fp32 of its test has"


class Strangers:
    """Right strangers on every test that they are right for, wrong ones on one."""

    def runs(self, left_out: list[str]) -> Iterator[Run]:
        """Yield all runs: one seed each."""
        for case in CASES.values():
            for right in RIGHTS.values():
                is_excused = right.exotic or (right.centred_only and case.offset)
                if case.test.kernel in right.kernels and not is_excused:
                    yield Run("strangers", right.name, case.name, 0)
        kinds = {kind: [c for c in CASES.values() if c.test.kernel == kind] for kind, _ in WRONGS}
        for place, (kind, name) in enumerate(WRONGS):
            number = place % len(kinds[kind])
            base = BASES[(place + number) % len(BASES)].name
            yield Run("strangers", base, kinds[kind][number].name, 0, name)

    def prepare(self, chosen: Sequence[Run], left_out: list[str]) -> Sequence[Run]:
        """Return all of them."""
        return chosen

    def question(self, run: Run) -> Question:
        """Return the question without an arithmetic."""
        return question(CASES[run.case], run.seed)

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the outputs and the label."""
        case = CASES[run.case]
        if not run.edit:
            arithmetic = RIGHTS[run.kernel].arithmetic
            reason = ""
            if arithmetic.stored and case.test.numerics.output == "fp32":
                reason = COARSE
            elif "stochastic" in (arithmetic.buffering, arithmetic.output):
                reason = RANDOM
            size = "listed" if reason else "right"
            right = outputs(f"right:{run.kernel}", case, run.seed)
            return right, Label(size, group(arithmetic.stored), reason=reason)
        rest = f"{run.kind}:{run.edit}:{run.kernel}"
        wrong, twin = (outputs(f"{which}:{rest}", case, run.seed) for which in ("wrong", "clean"))
        rounds = group(BY_NAME[run.kernel].stored)
        exact, worst = worst_errors(run.case, run.seed)
        return wrong, Label(size_of(wrong, twin, exact, worst, rounds), rounds)


def group(stored: frozenset[str]) -> str:
    """Return where an arithmetic rounds."""
    return "16-bit-storing" if stored else "fp32-inside"


def question(case: Case, seed: int) -> Question:
    """Return the question of a test."""
    test = case.test
    given = quantise(test, generate(test, seed))
    numerics = {"input": test.numerics.input, "output": test.numerics.output}
    return Question(
        test.kernel, given, test.epsilon, numerics, tolerance=test.canonical()["tolerance"]
    )


def outputs(build: str, case: Case, seed: int) -> Arrays:
    """Return what a stranger computes on this seed in its fourth run; another seed came before."""
    kernel, spec = Stranger(build), case.test.canonical()
    kernel.runs = RUNS_BEFORE - 1
    kernel.run(spec, dict(question(case, seed + 1).inputs))
    return kernel.run(spec, dict(question(case, seed).inputs))


@lru_cache(maxsize=16)
def worst_errors(name: str, seed: int) -> tuple[Arrays, Mapping[str, float]]:
    """Return the function in float64 and the largest error of the right bases for each output."""
    case = CASES[name]
    exact = exact_outputs(question(case, seed))
    worst: dict[str, float] = {}
    for base in BASES:
        build = f"right:{base.name}"
        for output, error in errors_of(outputs(build, case, seed), exact).items():
            if np.isfinite(error):
                worst[output] = max(worst.get(output, 0.0), error)
    return exact, worst
