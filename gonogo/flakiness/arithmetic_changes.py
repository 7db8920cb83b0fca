"""Changes of arithmetic: a build's outputs are explained by another one than on earlier builds.

A kernel's arithmetic is learned per branch. Another one than before is explained by rounding, so
that no verdict turns red, and still is worth knowing: x^ may now be stored in bf16.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MIN_ELEMENTS = 1000
"""The least elements of an output whose arithmetic counts: on fewer, several fit."""
LAST_BUILDS = 5
"""Earlier builds that say what to expect: one night with another arithmetic doesn't change it,
after three in a row the new one is expected."""
CHANCE = 0.01
"""The chance of a change where seeds of both builds have both names: the first arithmetic that
explains a seed names it, and running sums, for example, are close enough to blocked ones in some
seeds."""

Programs = Mapping[str, int]
"""Number of explained seeds by the name of the arithmetic that explains them."""


@dataclass(frozen=True)
class BuildPrograms:
    """The arithmetics that explain the seeds of a build, by output."""

    build: str
    outputs: Mapping[str, Programs] = field(default_factory=dict)

    def explained(self, output: str, arithmetic: str) -> int:
        """Return the number of seeds of an output that an arithmetic explains."""
        return self.outputs.get(output, {}).get(arithmetic, 0)

    def seeds(self, output: str) -> int:
        """Return the number of explained seeds of an output."""
        return sum(self.outputs.get(output, {}).values())

    def prevailing(self, output: str) -> str | None:
        """Return the arithmetic of more than half of an output's seeds; None: there is none."""
        return _majority(self.outputs.get(output, {}))


def pooled(build: str, jobs: Sequence[Mapping[str, Programs]]) -> BuildPrograms:
    """Return the arithmetics of all jobs of a build together."""
    outputs: dict[str, Counter[str]] = {}
    for job in jobs:
        for output, programs in job.items():
            outputs.setdefault(output, Counter()).update(programs)
    return BuildPrograms(build, outputs)


@dataclass(frozen=True)
class ArithmeticChange:
    """Another arithmetic of an output than on earlier builds.

    `after` explains `seeds` of `of` seeds of this build. `builds` are the earlier ones with
    `before`, newest first.
    """

    output: str
    before: str
    after: str
    seeds: int
    of: int
    builds: tuple[str, ...]

    @property
    def words(self) -> str:
        """The change in words, such as 'y: was "fused", is "stored-xhat"'."""
        return words([self])


def changes(build: BuildPrograms, earlier: Sequence[BuildPrograms]) -> tuple[ArithmeticChange, ...]:
    """Return a change for each output whose arithmetic isn't the expected one, by name.

    earlier: the builds before this one, newest first. Each of the last LAST_BUILDS with an
    arithmetic in most of its seeds has one vote; the one with more than half of the votes is
    expected. An output whose seeds agree on none, here or before, has no change. Neither has one
    whose name may differ between seeds by chance.
    """
    changed = []
    for output in sorted(build.outputs):
        voting = [other for other in earlier if other.prevailing(output) is not None]
        voting = voting[:LAST_BUILDS]
        before = _majority(Counter(other.prevailing(output) or "" for other in voting))
        after = build.prevailing(output)
        if before is None or after is None or before == after:
            continue
        if not _may_be_chance(build, voting, output, before, after):
            builds = tuple(other.build for other in voting if other.prevailing(output) == before)
            seeds, of = build.explained(output, after), build.seeds(output)
            changed.append(ArithmeticChange(output, before, after, seeds, of, builds))
    return tuple(changed)


def _majority(counts: Mapping[str, int]) -> str | None:
    """Return the name with more than half of all counts; None: there is none."""
    name = max(counts, key=lambda name: counts[name], default=None)
    return name if name is not None and 2 * counts[name] > sum(counts.values()) else None


def _may_be_chance(
    build: BuildPrograms, earlier: Sequence[BuildPrograms], output: str, before: str, after: str
) -> bool:
    """Return whether one kernel may have given both names.

    It can't where no seed here has the earlier name, and none before has the new one. Else it may,
    unless the share of either has changed by more than chance.
    """
    here, there = build.seeds(output), sum(other.seeds(output) for other in earlier)
    still, now = build.explained(output, before), build.explained(output, after)
    was = sum(other.explained(output, before) for other in earlier)
    already = sum(other.explained(output, after) for other in earlier)
    if not still and not already:
        return False
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
    for one in changed:
        outputs.setdefault(f'was "{one.before}", is "{one.after}"', []).append(one.output)
    return "; ".join(f"{', '.join(names)}: {phrase}" for phrase, names in outputs.items())
