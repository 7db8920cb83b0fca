"""The acceptance table: which runs a row counts, and what is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.corpus.run import Run


@dataclass(frozen=True)
class Judged:
    """A row of the table of verdicts, read for the acceptance table."""

    run: Run
    row: Mapping[str, Any]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Judged:
        """Return the run of a row's id with its columns."""
        source, kernel, case, seed, edit = _parts(row["id"])
        return cls(Run(source, kernel, case, int(seed), edit), row)

    @property
    def is_flagged(self) -> bool:
        """Whether one seed alone is unexplained or suspect."""
        return bool(self.row["explanation"] in ("unexplained", "suspect"))

    @property
    def is_acquitted(self) -> bool:
        """Whether it is red and called right."""
        return bool(self.row["verdict"] == "fail_by_tolerance")

    @property
    def is_wide(self) -> bool:
        """Whether the outputs are in fp32."""
        return self.run.format == "fp32"

    @property
    def is_of_library(self) -> bool:
        """Whether torch, jax or onnxruntime computed it."""
        return self.run.source == "kernels" and not self.run.kernel.startswith("numpy")

    @property
    def is_declared(self) -> bool:
        """Whether the judge was told the program."""
        return self.run.source == "emulator"

    @property
    def is_emulated(self) -> bool:
        """Whether an emulated kernel ran it as its program says, not in another order."""
        return self.run.source == "emulator" and self.run.kernel == "correct"

    def has(self, *sizes: str) -> bool:
        """Whether the label has one of the sizes, with no program declared."""
        return self.row["size"] in sizes and not self.is_declared

    def is_inside(self) -> bool:
        """Whether the kernel is a source that stores nothing in 16 bits."""
        return bool(self.row["group"] == "fp32-inside")


def _parts(name: str) -> list[str]:
    """Return the five parts of an id: a kernel's name may hold slashes."""
    source, _, rest = name.partition("/")
    kernel, case, seed, edit = rest.rsplit("/", 3)
    return [source, kernel, case, seed, edit]


Test = Callable[[Judged], Any]


@dataclass(frozen=True)
class Row:
    """A row: the runs that count, and which of them are good.

    limit: the share that is asked; at_most: where smaller is better.
    """

    title: str
    request: str
    counts: Test = lambda judged: False
    good: Test = lambda judged: judged.is_flagged
    limit: float | None = None
    at_most: bool = False

    def measured(self, runs: Iterable[Judged]) -> str:
        """Return "395 of 398, 99.2 %", with an exclamation mark where more is asked."""
        chosen = [judged for judged in runs if self.counts(judged)]
        if not chosen:
            return "not recorded"
        count = sum(bool(self.good(judged)) for judged in chosen)
        share = count / len(chosen)
        missed = self.limit is not None and (
            share > self.limit if self.at_most else share < self.limit
        )
        return f"{count:,} of {len(chosen):,}, {100 * share:.2f} %{'  !' if missed else ''}"


def _red_wrong(judged: Judged) -> bool:
    return not judged.row["green"] and judged.has("clear", "small", "localized")


ROWS: Final = (
    Row(
        "right kernels flagged, fp32",
        "<= .5 %",
        lambda j: j.has("right") and j.is_wide,
        limit=0.005,
        at_most=True,
    ),
    Row(
        "right kernels flagged, bf16 and fp16",
        "<= 1 %",
        lambda j: j.has("right") and not j.is_wide,
        limit=0.01,
        at_most=True,
    ),
    Row(
        "of these, kernels of libraries",
        "<= 1 %",
        lambda j: j.has("right") and not j.is_wide and j.is_of_library,
        limit=0.01,
        at_most=True,
    ),
    Row(
        "right kernels on inputs that break their method (E[x^2] - mean^2, overflow): flagged",
        "listed apart",
        lambda j: j.has("listed"),
    ),
    Row(
        "wrong, clear, fp32: flagged",
        ">= 99 %",
        lambda j: j.has("clear") and j.is_wide,
        limit=0.99,
    ),
    Row(
        "wrong, clear, fp32-inside in 16 bits: flagged",
        ">= 96 %",
        lambda j: j.has("clear") and not j.is_wide and j.is_inside(),
        limit=0.96,
    ),
    Row(
        "these: called explained",
        "0",
        lambda j: j.has("clear") and not j.is_wide and j.is_inside(),
        lambda j: j.row["explanation"] == "explained",
        limit=0.0,
        at_most=True,
    ),
    Row(
        "wrong, clear, 16-bit-storing, program declared (emulated Wormhole): flagged",
        ">= 98 %",
        lambda j: j.row["size"] == "clear" and j.is_declared,
        limit=0.98,
    ),
    Row(
        "wrong, clear, 16-bit-storing, nothing declared: flagged",
        ">= 90 %",
        lambda j: j.has("clear") and not j.is_wide and not j.is_inside(),
        limit=0.90,
    ),
    Row(
        "localized faults, fp32 inside, 16-bit output: flagged",
        ">= 98 %",
        lambda j: j.has("localized") and not j.is_wide and j.is_inside(),
        limit=0.98,
    ),
    Row(
        "small faults of the table: flagged, or listed as a limit",
        "100 %",
        lambda j: j.has("small") and j.is_inside() and bool(j.row["fault"]),
        lambda j: j.is_flagged or j.row["listed"],
        limit=1.0,
    ),
    Row(
        "small faults, fp32-inside: flagged",
        ">= 80 %",
        lambda j: j.has("small") and j.is_inside(),
        limit=0.80,
    ),
    Row(
        "red wrong acquitted",
        "0",
        _red_wrong,
        lambda j: j.is_acquitted,
        limit=0.0,
        at_most=True,
    ),
    Row(
        "red right acquitted",
        ">= 90 %",
        lambda j: not j.row["green"] and j.has("right"),
        lambda j: j.is_acquitted,
        limit=0.90,
    ),
    Row(
        "emulated Wormhole: right builds replayed with noise 0, no bit off",
        "all",
        lambda j: j.is_emulated and j.row["size"] == "right",
        lambda j: j.row["explanation"] in ("explained", "inconclusive"),
        limit=1.0,
    ),
    Row(
        "emulated Wormhole: right builds flagged (false alarms)",
        "<= .1 %",
        lambda j: j.is_emulated and j.row["size"] == "right",
        limit=0.001,
        at_most=True,
    ),
    Row(
        "public cases: wrong flagged",
        "all",
        lambda j: j.run.source == "cases" and j.row["size"] not in ("right", "listed"),
        limit=1.0,
    ),
)
"""The rows; time and memory are measured by `make bench`."""
