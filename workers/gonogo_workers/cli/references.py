"""`gonogo check --reference-build`: run another build on the same seeds and compare the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from gonogo.cli.kit import show
from gonogo.errors import FieldError

if TYPE_CHECKING:
    from gonogo.judging.judging import SeedJudgement
    from gonogo.spec.test_spec import TestSpec
    from gonogo_workers.local.runner import LocalRunner

MAX_REFERENCE_BYTES = 2**29
"""Outputs of the reference build in memory; with more seeds the two builds take turns."""
BYTES_PER_ELEMENT = 8
"""y or dx in fp32, and as much again for a downstream output."""
NUMBERS = {
    "max difference": "max_abs",
    "in ulp": "ulp_max",
    "elements that differ": "mismatch_fraction",
}


class References:
    """The outputs of a reference build, seed by seed.

    Only one of the two builds has a process at a time, because both may need the same device.
    """

    def __init__(self, test: TestSpec, runner: LocalRunner, seeds: range) -> None:
        from gonogo.judging.pairs import Reference

        self.build = runner.build
        self._reference = Reference(runner.build, runner.arithmetic, runner.produced)
        self._test, self._runner, self._seeds = test, runner, seeds
        self._together = max(1, MAX_REFERENCE_BYTES // (BYTES_PER_ELEMENT * test.elements))
        self._outputs: dict[int, Mapping[str, Any]] = {}
        self._failures: dict[int, str] = {}

    def prepare(self, first: int) -> None:
        """Run the seeds from `first` on, as many as fit in memory.

        Raises FieldError for a build that doesn't belong to the kernel.
        """
        from gonogo.judging.inputs import generate, quantise
        from gonogo_workers.executors.base import ExecutorFailure, Stopped

        self._outputs.clear()
        for seed in range(first, min(first + self._together, self._seeds.stop)):
            try:
                self._outputs[seed] = self._runner.run(
                    self._test, quantise(self._test, generate(self._test, seed)), seed=seed
                )
            except Stopped:
                raise
            except FieldError as error:
                raise error.at(
                    "reference_build" if error.field == "build" else error.field
                ) from None
            except ExecutorFailure as problem:
                self._failures[seed] = f"reference build {self.build}: {problem}"
        self._runner.close()

    def failure(self, seed: int, kernel: LocalRunner) -> str | None:
        """Return why this seed has no reference outputs, or None when it has some.

        Runs the next seeds when they have not been run yet.
        """
        if seed not in self._outputs and seed not in self._failures:
            kernel.close()
            self.prepare(seed)
        return self._failures.get(seed)

    def compare(
        self, judged: SeedJudgement, seed: int, raw: Any, given: Any, outputs: Mapping[str, Any]
    ) -> SeedJudgement:
        """Return the judgement with the comparison.

        Raises KernelOutputError when the reference build's outputs can't be compared.
        """
        from gonogo.judging.pairs import compare

        return compare(
            self._test, judged, raw, given, outputs, self._outputs[seed], self._reference
        )


def table(rows: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return a table of how much the two builds differ per output; None without a comparison."""
    comparisons: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for name, output in row["outputs"].items():
            if output.get("reference"):
                comparisons.setdefault(name, []).append(output["reference"])
    if not comparisons:
        return None
    build = next(iter(comparisons.values()))[0]["build"]
    title = Text(f"against {build}", style="bold")
    columns = ("output", "difference", *NUMBERS)
    compared = show.plain_table(*columns, right=NUMBERS, title=title, title_justify="left")
    for name, entries in comparisons.items():
        worst = min((entry["explanation"] for entry in entries), key=_rank)
        values = [
            max((v for entry in entries if (v := entry.get(key)) is not None), default=None)
            for key in NUMBERS.values()
        ]
        compared.add_row(name, show.plain_words(worst), *map(show.number, values))
    return compared


def flips(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return each output's flips over the seeds as the API shows them.

    None without a comparison.
    """
    from gonogo.judging.flip_summary import pooled_rows

    return [asdict(output) for output in pooled_rows(rows)] or None


def flips_line(output: Mapping[str, Any]) -> Text:
    """Return one output's flips as a line."""
    counts = f"{output['differing']} of {output['elements']} elements differ"
    return Text.assemble(
        (f"flips of {output['output']}: ", "dim"),
        (output["words"], "bold" if output["one_way"] else ""),
        (f" ({counts})", "dim"),
    )


def _rank(explanation: str) -> int:
    from gonogo.spec.verdicts import Explanation

    return list(Explanation).index(Explanation(explanation))
