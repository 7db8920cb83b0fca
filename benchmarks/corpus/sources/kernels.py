"""Every kernel by torch, jax and onnxruntime, and by NumPy with faults of the general table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np

from benchmarks.corpus.run import CLEAR, CLEAR_16, TOLERANCES, Arrays, Label, Question, Run, size_of
from benchmarks.kernels import libraries
from benchmarks.kernels.cases import REGIMES, Case
from benchmarks.kernels.rows import Row, rows
from benchmarks.kernels.wrong import FAULTS, numpy_fault, numpy_kernel

NUMPY = "numpy"


class Libraries:
    """Rows of benchmarks.kernels, right and with their one-line faults; `make libraries` first.

    A kernel is "torch:1": the second of torch's rows for the case's kernel. An edit is the number
    of a row's fault; NumPy's are the kernel's own mistakes and some of the table.
    """

    def __init__(self) -> None:
        self._outputs: dict[tuple[Case, str, str], Arrays] = {}
        self._worst: dict[Case, dict[str, float]] = {}

    def runs(self) -> Iterator[Run]:
        """Yield all runs: one seed each."""
        seen: set[Case] = set()
        for name, row in named_rows().items():
            kernel, library = name
            for form in row.formats:
                for regime in REGIMES:
                    case = Case.of(row, form, regime)
                    text = f"{kernel}-{'x'.join(map(str, case.shape))}-{regime}-{form}"
                    for edit in ("", *map(str, range(len(row.faults)))):
                        yield Run("kernels", library, text, 0, edit)
                    if case not in seen:
                        seen.add(case)
                        mistakes = map(str, range(len(case.kernel.mistakes) + FAULTS))
                        for edit in ("", *mistakes):
                            yield Run("kernels", f"{NUMPY}:{library}", text, 0, edit)

    def prepare(self, chosen: Sequence[Run]) -> Iterator[Run]:
        """Run the libraries, each in one process; yield what has outputs."""
        cases = {case_of(run) for run in chosen}
        requested: dict[tuple[Case, int, str], libraries.Run] = {}

        def want(row: Row, code: str, case: Case) -> None:
            requested[case, id(row), code] = libraries.Run(row, code, case)

        for run in chosen:
            if not run.kernel.startswith(NUMPY):
                row = row_of(run)
                want(row, row.faults[int(run.edit)] if run.edit else row.code, case_of(run))
        for row in named_rows().values():
            for form in row.formats:
                for regime in REGIMES:
                    if (case := Case.of(row, form, regime)) in cases:
                        want(row, row.code, _same(case))
        for done, result in libraries.results(list(requested.values())):
            self._outputs[done.case, done.row.library, done.code] = result.outputs
            if done.is_right:
                self._note(done.case, result.outputs)
        for case in cases:
            self._note(case, numpy_kernel(case).outputs)
        for run in chosen:
            if run.kernel.startswith(NUMPY) or self._key(run) in self._outputs:
                yield run

    def question(self, run: Run) -> Question:
        """Return the question, with nothing named."""
        case = case_of(run)
        numerics = {"input": case.form, "output": case.form}
        tolerance = TOLERANCES[case.form]
        return Question(run.kind, case.inputs, numerics, case.arguments, tolerance)

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the outputs and the label."""
        case = case_of(run)
        group = "fp32-inside" if run.kernel.startswith(NUMPY) or case.form == "fp32" else ""
        fault = ""
        if run.kernel.startswith(NUMPY):
            right = outputs = numpy_kernel(case).outputs
            if run.edit:
                fault, result = numpy_fault(case, int(run.edit))
                outputs = result.outputs
        else:
            outputs = self._outputs[self._key(run)]
            right = self._outputs.get((case, row_of(run).library, row_of(run).code), outputs)
        if not run.edit:
            return outputs, Label("right", group)
        factor = CLEAR.get(case.form, CLEAR_16)
        return outputs, Label(
            size_of(outputs, right, case.right, self._worst[case], factor), group, fault
        )

    def _note(self, case: Case, outputs: Arrays) -> None:
        worst = self._worst.setdefault(case, {})
        for name, error in case.errors(outputs).items():
            if np.isfinite(error):
                worst[name] = max(worst.get(name, 0.0), error)

    def _key(self, run: Run) -> tuple[Case, str, str]:
        row = row_of(run)
        return case_of(run), row.library, row.faults[int(run.edit)] if run.edit else row.code


@cache
def named_rows() -> Mapping[tuple[str, str], Row]:
    """Return (kernel, library and number) -> row."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    named = {}
    for row in rows():
        number = counts[row.kernel, row.library]
        named[row.kernel, f"{row.library}:{number}"] = row
        counts[row.kernel, row.library] += 1
    return named


def row_of(run: Run) -> Row:
    """Return the row of a run; NumPy's runs have the case of one."""
    return named_rows()[run.kind, run.kernel.removeprefix(f"{NUMPY}:")]


def case_of(run: Run) -> Case:
    """Return the case of a run; of equal ones the same object, which keeps what it computed."""
    _, _, regime, form = run.case.split("-")
    return _same(Case.of(row_of(run), form, regime))


@lru_cache(maxsize=256)
def _same(case: Case) -> Case:
    return case
