"""Arithmetic models in words: what a name means, how two differ, what a verdict can't have seen.

A name is that of a budget (gonogo.spec.arithmetic_names.BUDGETS), or that of a program that
reproduces an output, such as "bf16: mean, rstd stored, running sums" (gonogo.spec.program_name).
Results store names only, so that this module reads them without NumPy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.spec import missed_rows
from gonogo.spec.arithmetic_names import ALIASES, BUDGETS
from gonogo.spec.missed_rows import MissedRows
from gonogo.spec.program_name import COLUMN_SUMS, ProgramName, same, visible_part

UNKNOWN = "unknown"
"""Stands for the arithmetic model of an output that no program reproduces."""
OTHERS = "also_explained_by"
"""The statistic that names other programs that explain an output, where it is small."""
READ = (
    "arithmetic",
    "nearest_arithmetic",
    "reproduced_by",
    "detection_limits",
    OTHERS,
    missed_rows.NAME,
)
"""The statistics that `of_output` reads."""
SHOWN_OTHERS = 3
_PERCENT = re.compile(r"(\d[\d.]*(?:e[+-]?\d+)?) ?%")
_REMARK = re.compile(r" \([^()]*\)$")
_TRAITS: Mapping[str, str] = {
    "running sums": "Sums along a row take in one term after another.",
    "running means": "Means along a row are updated term by term, as in Welford's algorithm.",
    "variance by Welford's updates": "The variance is updated term by term, in lanes.",
    "variance as E[x^2] - mean^2": "The variance is computed as E[x^2] - mean^2.",
}
"""The meanings of the other parts of a program's name."""


def counted(names: Mapping[str | None, int]) -> dict[str | None, int]:
    """Return the number of seeds by arithmetic model, the most frequent first.

    Names that are the `same` count together, under the most frequent of them.
    """
    counts: dict[str | None, int] = {}
    for name in sorted(names, key=lambda name: (-names[name], name or "")):
        known = next((other for other in counts if name and other and same(name, other)), name)
        counts[known] = counts.get(known, 0) + names[name]
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class ProgramCount:
    """The number of seeds with an arithmetic model."""

    arithmetic: str | None
    """null: no program reproduces the output"""
    seeds: int


@dataclass(frozen=True)
class ArithmeticSummary:
    """The arithmetic model of an output, over the seeds of a job."""

    output: str
    arithmetic: str | None
    """The model of most seeds, such as "fp32-inside" or "bf16: mean, rstd stored", or the budget
    that rules them, such as "tt-train"; null if no program reproduces the output"""
    nearest_arithmetic: str | None
    """The program nearest to the seeds that none reproduces; null if all are"""
    programs: list[ProgramCount]
    """All models, the most frequent first"""
    seeds: int
    """The seeds that were read: the first 4,000 rows of the job"""
    detection_limits: list[str]
    """The faults that none of the seeds could have seen"""
    reproduced_by: str | None
    """The program that reproduces the seeds which no named one reproduces"""
    also_explained_by: list[str]
    """Other models that explain every seed; sought where x is small"""
    missed_rows: MissedRows | None
    """null where no such program reproduces most of the rows"""
    words: str


@dataclass(frozen=True)
class OutputArithmetic:
    """The arithmetic models of one output over several seeds.

    Attributes:
        output: the output's name.
        arithmetic: the model of most seeds; None: no program reproduces most of them.
        programs: the number of seeds by model; None: no program reproduces the output.
        nearest: the program nearest to those, of most of them; None where all are reproduced.
        seeds: the number of seeds.
        detection_limits: the faults that none of the seeds could have seen.
        reproduced_by: the program that reproduces most of the seeds that no named one reproduces.
        missed: the rows of all seeds that the nearest storing program misses.
        others: other programs that explain every seed.
    """

    output: str
    arithmetic: str | None
    programs: Mapping[str | None, int]
    nearest: str | None
    seeds: int
    detection_limits: tuple[str, ...]
    reproduced_by: str | None = None
    missed: MissedRows | None = None
    others: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The models in one line."""
        no_model = (
            "none that is named reproduces it" if self.reproduced_by else "none reproduces it"
        )
        counts = [
            f"{name or no_model} in {seeds:,} of {self.seeds:,} seeds"
            for name, seeds in self.programs.items()
        ]
        models = self.arithmetic if len(counts) == 1 and self.arithmetic else "; ".join(counts)
        nearest = f" (nearest: {self.nearest})" if self.nearest else ""
        other = f"; {unnamed(self.reproduced_by)}" if self.reproduced_by else ""
        return f"{models}{nearest}{other}"

    @property
    def words(self) -> str:
        """The models, other ones, missed rows and the limits in one line."""
        too = f"; {also(self.others)}" if self.others else ""
        rows = f"; {self.missed.words}" if self.missed and self.missed.words else ""
        limits = f"; {unseen(self.detection_limits)}" if self.detection_limits else ""
        return f"arithmetic model of {self.output}: {self.model}{too}{rows}{limits}"

    @property
    def summary(self) -> ArithmeticSummary:
        """Return what people read; the most frequent program comes first."""
        return ArithmeticSummary(
            output=self.output,
            arithmetic=self.arithmetic,
            nearest_arithmetic=self.nearest,
            programs=[ProgramCount(name, seeds) for name, seeds in self.programs.items()],
            seeds=self.seeds,
            detection_limits=list(self.detection_limits),
            reproduced_by=self.reproduced_by,
            also_explained_by=list(self.others),
            missed_rows=self.missed,
            words=self.words,
        )


def was_replayed(statistics: Mapping[str, Any]) -> bool:
    """Return whether an output's model is one by replay: its build names none, or programs."""
    return "nearest_arithmetic" in statistics


def with_model(statistics: Mapping[str, Any], named: str | None) -> Mapping[str, Any] | None:
    """Return an output's statistics with its model as `arithmetic`; None: it has nothing to show.

    It has where it was replayed, and where a budget explains it, which then is the model.

    named: the model that rules the seed, where the statistics don't name it.
    """
    if was_replayed(statistics):
        return statistics
    return {"arithmetic": named, **statistics} if "detection_limits" in statistics else None


def of_output(output: str, rows: Sequence[Mapping[str, Any]]) -> OutputArithmetic:
    """Return the models of an output from at least one seed's statistics (see with_model)."""
    programs = counted(Counter(row.get("arithmetic") for row in rows))
    nearest = counted(
        Counter(row["nearest_arithmetic"] for row in rows if row.get("arithmetic") is None)
    )
    others = [row["reproduced_by"] for row in rows if row.get("reproduced_by")]
    return OutputArithmetic(
        output,
        next(iter(programs)),
        programs,
        next(iter(nearest), None),
        len(rows),
        shared_limits(row["detection_limits"] for row in rows if "detection_limits" in row),
        next(iter(counted(Counter(others))), None),
        missed_rows.pooled(rows),
        shared_others(rows),
    )


def of_results(rows: Iterable[Mapping[str, Any]]) -> tuple[OutputArithmetic, ...]:
    """Return the models of each output of result rows that has one, in the rows' order."""
    outputs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for output, statistics in (row.get("outputs") or {}).items():
            known = with_model(statistics, row.get("arithmetic"))
            if known is not None:
                outputs.setdefault(output, []).append(known)
    return tuple(of_output(output, outputs[output]) for output in outputs)


def meaning(name: str | None) -> str:
    """Return what a name means, in sentences; "" for one that is not known here."""
    if name is None or name == UNKNOWN:
        return "No arithmetic model that is known here reproduces the output."
    if name in BUDGETS:
        return f"The build names the arithmetic model {name}; its budget is the ruler."
    if name in ALIASES:
        return f"The build named {name}, which was a budget then, and now stands for programs."
    program = ProgramName.parse(name)
    if program is None:
        return ""
    sentences = ["Between the inputs and the output, all values stay in fp32."]
    if program.stored:
        formats = next(iter(program.stored.values()))
        sentences = [f"It stores {_listed(program.stored)} in {formats}; the rest stays in fp32."]
    for trait in program.traits:
        if trait.startswith(COLUMN_SUMS):
            sentences.append(f"Columns are added up as {trait.removeprefix(COLUMN_SUMS)}.")
        elif trait in _TRAITS:
            sentences.append(_TRAITS[trait])
    return " ".join(sentences)


def difference(before: str, after: str) -> str:
    """Return how a kernel's program changed, such as "x^ is now stored in bf16"."""
    old, new = visible_part(before), visible_part(after)
    if old is None or new is None:
        return f'was "{before}", is "{after}"'
    phrases = []
    added = [name for name, form in new.stored.items() if old.stored.get(name) != form]
    removed = [name for name in old.stored if name not in new.stored]
    if added:
        phrases.append(f"{_listed(added)} {_are(added)} now stored in {new.stored[added[0]]}")
    if removed:
        phrases.append(
            f"{_listed(removed)} {_are(removed)} no longer stored in {old.stored[removed[0]]}"
        )
    phrases += [f"now with {trait}" for trait in new.traits if trait not in old.traits]
    phrases += [f"no longer with {trait}" for trait in old.traits if trait not in new.traits]
    return "; ".join(phrases) or f'was "{before}", is "{after}"'


def unnamed(program: str) -> str:
    """Return that a program reproduces an output which no named one reproduces, as a phrase."""
    return f"{program} reproduces it, which is not named"


def also(others: Sequence[str]) -> str:
    """Return the other programs that explain an output as one phrase."""
    more = f" and {len(others) - SHOWN_OTHERS} more" if len(others) > SHOWN_OTHERS else ""
    return f"other arithmetic models explain it too: {'; '.join(others[:SHOWN_OTHERS])}{more}"


def shared_others(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the programs that explain every seed of an output, but for the one of most seeds.

    A seed says nothing of a program that it is not asked for, so that all seeds must name it.
    """
    seeds = [[row.get("arithmetic"), *row.get(OTHERS, ())] for row in rows]
    if not seeds or any(names[0] is None for names in seeds):
        return ()
    usual = next(iter(counted(Counter(names[0] for names in seeds))))
    candidates = dict.fromkeys(name for name in seeds[0] if not same(name, usual or ""))
    return tuple(
        name
        for name in candidates
        if all(any(same(name, other) for other in names) for names in seeds)
    )


def unseen(limits: Sequence[str]) -> str:
    """Return the detection limits as one phrase; "" for none."""
    return f"couldn't have seen: {'; '.join(limits)}" if limits else ""


def shared_limits(seeds: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the faults that none of several seeds could have seen.

    A fault that one seed can see isn't a limit of all. Of a size, such as "a common factor below
    0.3 %", the smallest counts.
    """
    shared: dict[str, str] | None = None
    for limits in seeds:
        here = {_kind(phrase): phrase for phrase in limits}
        if shared is None:
            shared = here
            continue
        shared = {
            kind: min(phrase, here[kind], key=_size)
            for kind, phrase in shared.items()
            if kind in here
        }
    return tuple((shared or {}).values())


def _kind(phrase: str) -> str:
    """Return a limit without its size and its remark, by which equal ones are known."""
    return _PERCENT.sub("%", _REMARK.sub("", phrase))


def _size(phrase: str) -> float:
    match = _PERCENT.search(phrase)
    return float(match[1]) if match else 0.0


def _listed(names: Iterable[str]) -> str:
    members = list(names)
    return " and ".join(filter(None, (", ".join(members[:-1]), members[-1])))


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
