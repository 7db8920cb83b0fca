"""Changes of arithmetic: the programs found on a build against those of earlier builds.

A kernel's arithmetic is learned per branch. Another one than before is explained by rounding, so
that no verdict turns red, and still is worth knowing: x^ may now be stored in bf16.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gonogo.spec import arithmetic_words
from gonogo.spec.program_name import same

MIN_ELEMENTS = 1000
"""The least elements of an output whose program counts: on fewer, several programs fit."""
LAST_BUILDS = 5
"""Earlier builds that say what to expect.

One night with another arithmetic doesn't change what the next ones are compared with, and after
three in a row the new one is expected.
"""

CHANCE = 0.01
"""The chance of a change where seeds of one kernel may be explained by either program.

The ladder names the first program that explains a seed. The sums of a kernel with running ones, for
example, are near enough to blocked ones in some seeds.
"""

Programs = Mapping[str | None, int]
"""Number of seeds by the name of the program found; None: no program reproduces the output."""


@dataclass(frozen=True)
class BuildPrograms:
    """The programs found on a build, by output."""

    build: str
    outputs: Mapping[str, Programs] = field(default_factory=dict)
    others: Mapping[str, Programs] = field(default_factory=dict)
    """Number of seeds by each other program that explains them, too; of small tests only."""

    def explained(self, output: str, program: str) -> int:
        """Return the seeds of an output that a program explains, whether it names them or not."""
        return sum(
            seeds
            for programs in (self.outputs, self.others)
            for name, seeds in programs.get(output, {}).items()
            if name is not None and same(name, program)
        )

    def explains_too(self, output: str, program: str) -> bool:
        """Return whether a program explains seeds of an output that have another one's name."""
        return any(name and same(name, program) for name in self.others.get(output, {}))

    def seeds(self, output: str) -> int:
        """Return the seeds of an output."""
        return sum(self.outputs.get(output, {}).values())

    def prevailing(self, output: str) -> str | None:
        """Return the program of more than half of the seeds of an output; None: there is none."""
        name, seeds, of = self.majority(output)
        return name if 2 * seeds > of else None

    def majority(self, output: str) -> tuple[str | None, int, int]:
        """Return the most frequent program of an output, its seeds, and the seeds in all."""
        programs = arithmetic_words.counted(self.outputs.get(output) or {})
        name, seeds = next(iter(programs.items()), (None, 0))
        return name, seeds, sum(programs.values())


def pooled(
    build: str,
    jobs: Sequence[Mapping[str, Programs]],
    others: Sequence[Mapping[str, Programs]] = (),
) -> BuildPrograms:
    """Return the programs of all jobs of a build together; others: the other programs of each."""
    return BuildPrograms(build, _added(jobs), _added(others))


def _added(jobs: Sequence[Mapping[str, Programs]]) -> dict[str, Counter[str | None]]:
    outputs: dict[str, Counter[str | None]] = {}
    for job in jobs:
        for output, programs in job.items():
            outputs.setdefault(output, Counter()).update(programs)
    return outputs


@dataclass(frozen=True)
class ArithmeticChange:
    """Another program of an output than on earlier builds.

    Attributes:
        output: the output's name.
        before, after: the names of the two programs.
        seeds: the seeds of this build with the program `after`, of `of`.
        builds: the earlier builds with the program `before`, newest first.
    """

    output: str
    before: str
    after: str
    seeds: int
    of: int
    builds: tuple[str, ...]

    @property
    def words(self) -> str:
        """The change in words, such as "y: x^ is now stored in bf16"."""
        return f"{self.output}: {arithmetic_words.difference(self.before, self.after)}"


def changes(build: BuildPrograms, earlier: Sequence[BuildPrograms]) -> tuple[ArithmeticChange, ...]:
    """Return a change for each output whose program isn't the expected one, by name.

    earlier: the builds before this one, newest first. Each of the last LAST_BUILDS with a program
    in most of its seeds has one vote; the program with more than half of the votes is expected. An
    output whose seeds agree on none, here or before, has no change. Neither has one whose seeds
    may be one kernel's that both programs explain now and then.
    """
    changed = []
    for output in sorted(build.outputs):
        voting = [other for other in earlier if other.prevailing(output) is not None]
        voting = voting[:LAST_BUILDS]
        voters = [(other.build, other.prevailing(output)) for other in voting]
        after, seeds, of = build.majority(output)
        if after is None or 2 * seeds <= of or not voters:
            continue
        votes = arithmetic_words.counted(Counter(program for _, program in voters))
        before = next(iter(votes))
        if before is None or 2 * votes[before] <= len(voters):
            continue
        if same(before, after) or _may_be_one(build, voting, output, before, after):
            continue
        builds = tuple(name for name, program in voters if program and same(program, before))
        changed.append(ArithmeticChange(output, before, after, seeds, of, builds))
    return tuple(changed)


def _may_be_one(
    build: BuildPrograms, earlier: Sequence[BuildPrograms], output: str, before: str, after: str
) -> bool:
    """Return whether one kernel may have given both programs.

    It can't where no seed that has one of their names is explained by the other, too. Else it may,
    unless the share of seeds that `before` explains has fallen, or that of `after` has risen, by
    more than chance.
    """
    if not build.explains_too(output, before) and not any(
        other.explains_too(output, after) for other in earlier
    ):
        return False
    here, there = build.seeds(output), sum(other.seeds(output) for other in earlier)
    still = build.explained(output, before)
    already = sum(other.explained(output, after) for other in earlier)
    was = sum(other.explained(output, before) for other in earlier)
    now = build.explained(output, after)
    return chance(still, here, was, there) > CHANCE and chance(already, there, now, here) > CHANCE


def chance(few: int, of_few: int, many: int, of_many: int) -> float:
    """Return the chance of so few of `of_few` seeds, beside `many` of `of_many`, at equal rates.

    It is the one-sided exact test of Fisher: the lower tail of the hypergeometric distribution.
    """
    total, hits = of_few + of_many, few + many
    ways = sum(math.comb(hits, k) * math.comb(total - hits, of_few - k) for k in range(few + 1))
    return ways / math.comb(total, of_few)


def words(changed: Sequence[ArithmeticChange]) -> str:
    """Return several changes as one phrase; outputs with equal changes stand together."""
    outputs: dict[str, list[str]] = {}
    for change in changed:
        outputs.setdefault(arithmetic_words.difference(change.before, change.after), []).append(
            change.output
        )
    return "; ".join(f"{', '.join(names)}: {phrase}" for phrase, names in outputs.items())
