"""Plant small faults in the code, one at a time, and count those that the tests near them notice.

`python -m benchmarks.mutants --subjects leases,locks --sample 20`. The sample is drawn by a seed,
which is printed. Exits 1 where a subject is below the share that is asked. A mutant that nothing
can notice (the program does the same) counts as surviving: read the list.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.mutants.mutations import mutations
from benchmarks.mutants.subjects import SUBJECTS, Subject
from benchmarks.mutants.trial import ROOT, Copy, Outcome, TestsFail

MIN_NOTICED = 0.85
"""The share of mutants that the tests have to notice."""


@dataclass(frozen=True)
class Score:
    """The outcomes of a subject's sample."""

    subject: str
    mutants: int
    """All that there are; `tried` of them were run."""
    tried: int
    killed: int
    hung: int
    survivors: tuple[str, ...]
    seconds: float

    @property
    def share(self) -> float:
        """Return the share that was noticed."""
        return (self.killed + self.hung) / self.tried if self.tried else 1.0


def score(copy: Copy, subject: Subject, sample: int, seed: int, console: Console) -> Score:
    """Try a sample of a subject's mutants."""
    began = time.monotonic()
    console.print(f"{subject.name}: the tests take {copy.check(subject.tests):.0f} s")
    mutants = [
        (module, source, mutation)
        for module in subject.modules
        for source in [(ROOT / module).read_bytes()]
        for mutation in mutations(source)
    ]
    chosen = random.Random(f"{seed}/{subject.name}").sample(mutants, min(sample, len(mutants)))
    outcomes, survivors = [], []
    for module, source, mutation in chosen:
        outcome = copy.try_(module, mutation.apply(source), subject.tests)
        outcomes.append(outcome)
        line = f"{module}:{mutation.line}: {mutation}"
        console.print(f"  {outcome:8} {line}", markup=False, highlight=False, soft_wrap=True)
        if outcome is Outcome.survived:
            survivors.append(line)
    return Score(
        subject.name,
        len(mutants),
        len(chosen),
        outcomes.count(Outcome.killed),
        outcomes.count(Outcome.hung),
        tuple(sorted(survivors)),
        time.monotonic() - began,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    names = [subject.name for subject in SUBJECTS]
    parser.add_argument("--subjects", default=",".join(names), help="default: all")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each subject")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    given = parser.parse_args(arguments)
    unknown = set(given.subjects.split(",")) - set(names)
    if unknown or given.sample < 1:
        parser.error(f"unknown: {', '.join(sorted(unknown))}" if unknown else "--sample is below 1")
    console = Console(stderr=True)
    console.print(f"seed {given.seed}, {given.sample} mutants of each subject")
    scores = []
    with tempfile.TemporaryDirectory(prefix="gonogo-mutants-") as folder:
        copy = Copy(Path(folder))
        for subject in SUBJECTS:
            if subject.name in given.subjects.split(","):
                try:
                    scores.append(score(copy, subject, given.sample, given.seed, console))
                except TestsFail as problem:
                    print(problem, file=sys.stderr)
                    return 3
    _print(scores)
    if given.json is not None:
        document = {"seed": given.seed, "scores": [asdict(result) for result in scores]}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(result.share < MIN_NOTICED for result in scores))


def _print(scores: Sequence[Score]) -> None:
    table = Table("subject", "mutants", "tried", "killed", "hung", "survived", "noticed")
    for result in scores:
        numbers = (result.mutants, result.tried, result.killed, result.hung, len(result.survivors))
        table.add_row(result.subject, *map(str, numbers), f"{result.share:.0%}")
    console = Console()
    console.print(table)
    for result in scores:
        for line in result.survivors:
            console.print(f"survived: {line}", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
