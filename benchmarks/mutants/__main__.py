"""Plant small faults in the code, one at a time, and count those that the tests near them notice.

`python -m benchmarks.mutants --subjects leases,locks --sample 20`. Seeds draw the samples. Exits 1
where a subject is below the share that is asked. A `<` that becomes `<=` between floats that are
never equal is left out, by the rule in `edges`. Any other mutant that nothing can notice (the
program does the same) counts as surviving: read the list.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.mutants.mutations import Mutation, mutations
from benchmarks.mutants.subject import Subject
from benchmarks.mutants.subjects import SUBJECTS
from benchmarks.mutants.trial import Copy, Outcome, TestsFail, Trial, check_folder

MIN_NOTICED = 0.85
"""The share of mutants that the tests have to notice."""


@dataclass(frozen=True)
class Score:
    """The outcomes of a subject's sample."""

    subject: str
    seed: int
    mutants: int
    """All that there are without the float edges; `tried` of them were run."""
    float_edges: int
    """Left out: `<` for `<=` where the tests compare measured numbers, which are never equal."""
    tried: int
    killed: int
    hung: int
    survivors: tuple[str, ...]
    sample: tuple[str, ...]
    """The mutants that were run, survivors or not: for `--without`."""
    seconds: float

    @property
    def share(self) -> float:
        """Return the share that was noticed."""
        return (self.killed + self.hung) / self.tried if self.tried else 1.0


def scores_of(
    copy: Copy,
    subject: Subject,
    sample: int,
    seeds: Sequence[int],
    console: Console,
    left_out: AbstractSet[str] = frozenset(),
) -> Iterator[Score]:
    """Try a sample of a subject's mutants for each seed, without some."""
    mutants = [
        (module, source, mutation)
        for module in subject.modules
        for source in [(copy.folder / module).read_bytes()]
        for mutation in mutations(source)
    ]
    with closing(Trial(copy, subject.modules, subject.tests)) as trial:
        console.print(f"{subject.name}: the tests take {trial.check():.0f} s")
        every = len(mutants)
        mutants = [
            (module, source, mutation)
            for module, source, mutation in mutants
            if not trial.is_float_edge(module, mutation.start, mutation.end)
        ]
        count = len(mutants)
        mutants = [mutant for mutant in mutants if _name(mutant[0], mutant[2]) not in left_out]
        for seed in seeds:
            chance = random.Random(f"{seed}/{subject.name}")
            began, outcomes, survivors, names = time.monotonic(), [], [], []
            for module, source, mutation in chance.sample(mutants, min(sample, len(mutants))):
                outcome = trial.try_(module, source, mutation.apply(source), mutation.line)
                outcomes.append(outcome)
                names.append(_name(module, mutation))
                line = f"{module}:{mutation.line}: {mutation}"
                console.print(
                    f"  {outcome:8} {line}", markup=False, highlight=False, soft_wrap=True
                )
                if outcome is Outcome.survived:
                    survivors.append(line)
            yield Score(
                subject.name,
                seed,
                count,
                every - count,
                len(outcomes),
                outcomes.count(Outcome.killed),
                outcomes.count(Outcome.hung),
                tuple(sorted(survivors)),
                tuple(names),
                time.monotonic() - began,
            )


def _name(module: str, mutation: Mutation) -> str:
    """Return the name of a mutant without its line, which other changes move."""
    return f"{module}: {mutation}"


def _tried(files: Sequence[Path]) -> frozenset[str]:
    """Return the mutants that earlier runs tried, from the files of `--json`."""
    scores = [score for file in files for score in json.loads(file.read_text())["scores"]]
    return frozenset(name for score in scores for name in score["sample"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    names = [subject.name for subject in SUBJECTS]
    parser.add_argument("--subjects", default=",".join(names), help="default: all")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each subject")
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=[1],
        metavar="N,N,...",
        help="a sample of each; after tests for the survivors of one, another one says whether they"
        " notice other mutants, too (default: 1)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="of the copy; its compiled code is kept for the next time (default: a temporary one)",
    )
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument(
        "--without",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="leave out mutants that an earlier run tried, by its --json file: tests may have been"
        " written for them",
    )
    given = parser.parse_args(arguments)
    unknown = set(given.subjects.split(",")) - set(names)
    if unknown or given.sample < 1:
        parser.error(f"unknown: {', '.join(sorted(unknown))}" if unknown else "--sample is below 1")
    if given.folder is not None:
        try:
            check_folder(given.folder)
        except ValueError as problem:
            parser.error(str(problem))
    console = Console(stderr=True)
    console.print(f"seeds {given.seeds}, {given.sample} mutants of each subject")
    scores: list[Score] = []
    with (
        tempfile.TemporaryDirectory(prefix="gonogo-mutants-") as folder,
        closing(Copy(given.folder or Path(folder))) as copy,
    ):
        for subject in SUBJECTS:
            if subject.name in given.subjects.split(","):
                try:
                    scores += scores_of(
                        copy, subject, given.sample, given.seeds, console, _tried(given.without)
                    )
                except TestsFail as problem:
                    print(problem, file=sys.stderr)
                    return 3
    _print(scores)
    if given.json is not None:
        document = {"scores": [asdict(result) for result in scores]}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(result.share < MIN_NOTICED for result in scores))


def _print(scores: Sequence[Score]) -> None:
    table = Table(
        "subject", "seed", "mutants", "float edges", "tried", "killed", "hung", "survived"
    )
    table.add_column("noticed")
    for result in scores:
        outcomes = (result.tried, result.killed, result.hung, len(result.survivors))
        numbers = (result.seed, result.mutants, result.float_edges, *outcomes)
        table.add_row(result.subject, *map(str, numbers), f"{result.share:.0%}")
    console = Console()
    console.print(table)
    for result in scores:
        for line in result.survivors:
            console.print(f"survived: {line}", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
