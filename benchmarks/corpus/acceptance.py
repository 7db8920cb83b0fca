"""The acceptance table: which runs a row counts, and what is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.corpus.answers import NOT_A_TERM
from benchmarks.corpus.run import Run

ALIKE: Final[Mapping[str, tuple[str, ...]]] = {
    "precision": (NOT_A_TERM, "mean", "variance", "rstd"),
    "variance": ("variance", "rstd", "epsilon", "scale"),
    "epsilon": ("epsilon", "variance", "rstd", "scale"),
    "rstd": ("rstd", "variance", "scale"),
    "scale": ("scale", "rstd", "gamma", "variance"),
    "groups": ("groups", "mean", "variance", "rstd"),
}
"""Terms that change an output alike: a row's factor is its rstd, its variance or its epsilon, and
a factor of the whole output may be gamma's."""
LEAST_EXACT_FEATURES: Final = 64


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
    def is_exact(self) -> bool:
        """Whether every right arithmetic gives the same bits on the inputs."""
        return "-exact-" in self.run.case

    @property
    def is_declared(self) -> bool:
        """Whether the judge was told the program."""
        return self.run.source in ("emulator", "wormhole")

    @property
    def is_emulated(self) -> bool:
        """Whether an emulated kernel ran it as its program says, not in another order."""
        return self.run.source == "emulator" and self.run.kernel == "correct"

    @property
    def is_named(self) -> bool | None:
        """Whether the first term is the right one; None where none is named."""
        term = self.row["term"]
        return None if term is None else term in ALIKE.get(self.row["fault"], (self.row["fault"],))

    def has(self, *sizes: str) -> bool:
        """Whether the label has one of the sizes, on ordinary inputs, with no program declared."""
        return self.row["size"] in sizes and not self.is_exact and not self.is_declared

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

    limit: the share that is asked; at_most: where smaller is better. lacks: where it is
    measured, or why it isn't.
    """

    title: str
    request: str
    counts: Test = lambda judged: False
    good: Test = lambda judged: judged.is_flagged
    limit: float | None = None
    at_most: bool = False
    lacks: str = ""

    def measured(self, runs: Iterable[Judged]) -> str:
        """Return "395 of 398, 99.2 %", with an exclamation mark where more is asked."""
        chosen = [judged for judged in runs if self.counts(judged)]
        if self.lacks or not chosen:
            return self.lacks or "not recorded"
        count = sum(bool(self.good(judged)) for judged in chosen)
        share = count / len(chosen)
        missed = self.limit is not None and (
            share > self.limit if self.at_most else share < self.limit
        )
        return f"{count:,} of {len(chosen):,}, {100 * share:.2f} %{'  !' if missed else ''}"


def _diagnosed(judged: Judged) -> bool:
    is_known = judged.row["fault"] not in ("", "place") and judged.has("clear", "small")
    return is_known and judged.row["explanation"] == "unexplained"


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
        lambda j: j.has("right") and not j.is_wide and j.run.source == "libraries",
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
        "small faults, fp32-inside: flagged, or listed as a limit",
        "100 %",
        lambda j: j.has("small") and j.is_inside(),
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
    Row("diagnosis: the right term first", ">= 92 %", _diagnosed, lambda j: j.is_named, limit=0.92),
    Row(
        "diagnosis: another term",
        "<= 2 %",
        _diagnosed,
        lambda j: j.is_named is False,
        limit=0.02,
        at_most=True,
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
        "every entry of the fault table as a wrong build: flagged; named",
        ">= 99 %; >= 95 %",
        lacks="python -m benchmarks.fault_table",
    ),
    Row(
        "real ttnn kernels on the simulated Wormhole: explained",
        "all",
        lambda j: j.row["size"] == "right" and j.run.source == "wormhole",
        lambda j: j.row["explanation"] == "explained",
        limit=1.0,
    ),
    Row(
        "40 kernels against torch, jax and onnxruntime: right flagged; clear faults flagged",
        "<= 1 %; >= 97 %",
        lacks="the corpus has five kernels",
    ),
    Row(
        "public cases: wrong flagged",
        "all",
        lambda j: j.run.source == "cases" and j.row["size"] not in ("right", "listed"),
        limit=1.0,
    ),
    Row(
        "exact inputs, logic edits at N >= 64: flagged",
        "100 %",
        lambda j: (
            j.is_exact
            and j.row["size"] in ("clear", "small", "localized")
            and j.row["fault"] not in ("precision", "epsilon")
        ),
        limit=1.0,
    ),
    Row(
        "exact inputs, right kernels: flagged",
        "0",
        lambda j: j.is_exact and j.row["size"] == "right",
        limit=0.0,
        at_most=True,
    ),
)
"""The rows of 20,000 runs; time and memory are measured by `make bench`."""
