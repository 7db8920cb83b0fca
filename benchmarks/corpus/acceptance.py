"""The acceptance figures: which runs each counts, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.corpus.run import Run
from benchmarks.report import Figure


@dataclass(frozen=True)
class Judged:
    """A row of the table of verdicts, and the run of its id."""

    run: Run
    row: Mapping[str, Any]

    @property
    def is_flagged(self) -> bool:
        """Whether one seed alone is unexplained or suspect."""
        return bool(self.row["explanation"] in ("unexplained", "suspect"))

    @property
    def is_false_alarm(self) -> bool:
        """Whether it is outside of the tolerance and called right."""
        return bool(self.row["verdict"] == "fail_by_tolerance")

    @property
    def is_red(self) -> bool:
        """Whether it is outside of the tolerance."""
        return not self.row["green"]

    @property
    def is_wide(self) -> bool:
        """Whether the outputs are in fp32."""
        return self.run.format == "fp32"

    @property
    def is_inside(self) -> bool:
        """Whether the kernel stores nothing in 16 bits but its outputs."""
        return bool(self.row["group"] == "fp32-inside")

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
        """Whether a right build ran as its program says, not in another order."""
        return self.is_declared and self.run.kernel == "correct" and self.row["size"] == "right"

    def has(self, *sizes: str) -> bool:
        """Whether the label has one of the sizes, with no program declared."""
        return self.row["size"] in sizes and not self.is_declared


Test = Callable[[Judged], Any]


@dataclass(frozen=True)
class Share:
    """A share of runs in percent: of those that `counts` takes, the ones that are `good`."""

    title: str
    counts: Test
    good: Test = lambda run: run.is_flagged
    most: float | None = None
    least: float | None = None


SHARES: Final = (
    Share("right, fp32: flagged", lambda j: j.has("right") and j.is_wide, most=0.5),
    Share("right, bf16 and fp16: flagged", lambda j: j.has("right") and not j.is_wide, most=1),
    Share(
        "right, bf16 and fp16, by libraries: flagged",
        lambda j: j.has("right") and not j.is_wide and j.is_of_library,
        most=1,
    ),
    Share("right on inputs that break their method: flagged", lambda j: j.has("listed")),
    Share("wrong, clear, fp32: flagged", lambda j: j.has("clear") and j.is_wide, least=99),
    Share(
        "wrong, clear, fp32 inside, 16-bit output: flagged",
        lambda j: j.has("clear") and not j.is_wide and j.is_inside,
        least=96,
    ),
    Share(
        "wrong, clear, fp32 inside, 16-bit output: called explained",
        lambda j: j.has("clear") and not j.is_wide and j.is_inside,
        lambda j: j.row["explanation"] == "explained",
        most=0,
    ),
    Share(
        "wrong, clear, 16 bits stored, nothing declared: flagged",
        lambda j: j.has("clear") and not j.is_wide and not j.is_inside,
        least=90,
    ),
    Share(
        "wrong, localized, 16-bit output: flagged",
        lambda j: j.has("localized") and not j.is_wide,
        least=98,
    ),
    Share(
        "wrong, small, of the fault table: flagged, or listed as a limit",
        lambda j: j.has("small") and j.is_inside and j.row["fault"],
        lambda j: j.is_flagged or j.row["listed"],
        least=100,
    ),
    Share("wrong, small, fp32 inside: flagged", lambda j: j.has("small") and j.is_inside, least=80),
    Share(
        "wrong and red: called a false alarm",
        lambda j: j.is_red and j.has("clear", "small", "localized"),
        lambda j: j.is_false_alarm,
        most=0,
    ),
    Share(
        "right and red: called a false alarm",
        lambda j: j.is_red and j.has("right"),
        lambda j: j.is_false_alarm,
        least=90,
    ),
    Share("emulated Wormhole, right: flagged", lambda j: j.is_emulated, most=0.1),
    Share(
        "emulated Wormhole, right: replayed, no bit off",
        lambda j: j.is_emulated,
        lambda j: j.row["explanation"] in ("explained", "inconclusive"),
        least=100,
    ),
    Share(
        "emulated Wormhole, wrong, clear: flagged",
        lambda j: j.is_declared and j.row["size"] == "clear",
        least=98,
    ),
    Share(
        "public bug reports, wrong: flagged",
        lambda j: j.run.source == "cases" and j.row["size"] not in ("right", "listed"),
        least=100,
    ),
)


def figures(rows: Iterable[Mapping[str, Any]]) -> Iterator[Figure]:
    """Yield the figures that rows of the table of verdicts have runs for."""
    judged = [Judged(Run.of(row["id"]), row) for row in rows]
    for share in SHARES:
        chosen = [run for run in judged if share.counts(run)]
        good = sum(bool(share.good(run)) for run in chosen)
        if chosen:
            percent, note = 100 * good / len(chosen), f"{good:,} of {len(chosen):,}"
            yield Figure(share.title, percent, "%", share.most, share.least, note)
