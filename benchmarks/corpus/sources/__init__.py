"""Where runs come from: a module each, with an object that lists, makes and labels its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from benchmarks.corpus.run import Arrays, Label, Question, Run


class Source(Protocol):
    """A source of runs."""

    def runs(self) -> Iterator[Run]:
        """Yield every run."""

    def prepare(self, runs: Sequence[Run]) -> Iterable[Run]:
        """Do what is cheaper for many runs at once; return those that can be made here."""

    def question(self, run: Run) -> Question:
        """Return what a judge is asked; the inputs come from the run's seed."""

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return outputs, in the shapes that the kernel returns, and the label."""


def all_sources() -> Mapping[str, Source]:
    """Return the sources by name."""
    from benchmarks.corpus.sources import cases, emulator, kernels

    return {
        "cases": cases.Cases(),
        "emulator": emulator.Emulated(),
        "kernels": kernels.Libraries(),
    }
