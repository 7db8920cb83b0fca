"""Arithmetic models in words: what a name means, how two differ, what a verdict can't have seen.

A name is that of a budget (gonogo.spec.builds.ARITHMETICS), or that of a program that was found by
replay, such as "bf16: mean, rstd stored, running sums" (gonogo.numerics.replay.program). Results
store names only, so that this module reads them without NumPy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.spec.builds import ARITHMETICS

UNKNOWN = "unknown"
"""Stands for the arithmetic model of an output that no program reproduces."""
NOTHING_STORED = "fp32-inside"
_STORED = re.compile(r"(?P<formats>[a-z0-9/]+): (?P<names>.+?) stored(?:, (?P<traits>.+))?")
_PERCENT = re.compile(r"(\d[\d.]*(?:e[+-]?\d+)?) ?%")
_REMARK = re.compile(r" \([^()]*\)$")
_TRAITS: Mapping[str, str] = {
    "running sums": "Sums along a row take in one term after another.",
    "running means": "Means along a row are updated term by term, as in Welford's algorithm.",
    "variance as E[x^2] - mean^2": "The variance is computed as E[x^2] - mean^2.",
}
"""The meanings of the other parts of a program's name."""
_COLUMN_SUMS = "column sums: "
_SCALED: Mapping[str, str] = {"sum of x": "mean", "sum of squares": "variance"}
"""Quantity -> 1/N times it. For N = 2^k both are rounded alike."""
_HIDDEN: Mapping[str, frozenset[str]] = {
    "rstd": frozenset({"square", "variance", "variance + epsilon", "root"}),
    "root": frozenset({"square", "variance", "variance + epsilon"}),
}
"""Stored quantity -> what only reaches the output through it.

Its rounding hides most of theirs, so that programs with and without them often fit the same output.
"""


@dataclass(frozen=True)
class ProgramName:
    """The parts of a program's name.

    Attributes:
        stored: the format of each stored quantity; several, such as "bf16/fp16", where the name
            doesn't say which.
        traits: the order of its sums and the form of its variance, as the name has them.
    """

    stored: Mapping[str, str]
    traits: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> ProgramName | None:
        """Return the parts of a name; None for one that isn't a program's."""
        rows, mark, columns = name.partition(f", {_COLUMN_SUMS}")
        by_columns = (_COLUMN_SUMS + columns,) if mark else ()
        if rows == NOTHING_STORED or rows.startswith(f"{NOTHING_STORED}, "):
            return cls({}, (*rows.split(", ")[1:], *by_columns))
        match = _STORED.fullmatch(rows)
        if match is None:
            return None
        stored = dict.fromkeys(match["names"].split(", "), match["formats"])
        return cls(stored, (*(match["traits"].split(", ") if match["traits"] else ()), *by_columns))

    @property
    def visible(self) -> ProgramName:
        """Return the name with what an output can tell apart only, in a fixed order."""
        stored = {_SCALED.get(name, name): form for name, form in self.stored.items()}
        hidden = {name for storing in stored for name in _HIDDEN.get(storing, ())}
        return ProgramName(
            {name: stored[name] for name in sorted(stored) if name not in hidden},
            tuple(sorted(self.traits)),
        )


def same(first: str, second: str) -> bool:
    """Return whether two names are of arithmetic models that one output can't tell apart.

    A search lists the stored quantities of a program in any order, those that others hide only now
    and then, and a sum for a mean. So the same kernel gets several names over its seeds.
    """
    if first == second:
        return True
    visible = _visible(first)
    return visible is not None and visible == _visible(second)


def _visible(name: str) -> ProgramName | None:
    program = ProgramName.parse(name)
    return None if program is None else program.visible


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
class OutputArithmetic:
    """The arithmetic models of one output over several seeds.

    Attributes:
        output: the output's name.
        arithmetic: the program of most seeds; None: most have none.
        programs: the number of seeds by program; None: no program reproduces the output.
        nearest: the program nearest to those, of most of them; None where all are reproduced.
        seeds: the number of seeds.
        detection_limits: the faults that none of the seeds could have seen.
    """

    output: str
    arithmetic: str | None
    programs: Mapping[str | None, int]
    nearest: str | None
    seeds: int
    detection_limits: tuple[str, ...]

    @property
    def words(self) -> str:
        """The models and the limits in one line."""
        counts = [
            f"{name or 'none reproduces it'} in {seeds:,} of {self.seeds:,} seeds"
            for name, seeds in self.programs.items()
        ]
        models = self.arithmetic if len(counts) == 1 and self.arithmetic else "; ".join(counts)
        nearest = f" (nearest: {self.nearest})" if self.nearest else ""
        limits = f"; {unseen(self.detection_limits)}" if self.detection_limits else ""
        return f"arithmetic model of {self.output}: {models}{nearest}{limits}"

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types; the most frequent program comes first."""
        return {
            "output": self.output,
            "arithmetic": self.arithmetic,
            "nearest_arithmetic": self.nearest,
            "programs": [
                {"arithmetic": name, "seeds": seeds} for name, seeds in self.programs.items()
            ],
            "seeds": self.seeds,
            "detection_limits": list(self.detection_limits),
            "words": self.words,
        }


def was_replayed(statistics: Mapping[str, Any]) -> bool:
    """Return whether an output's model was found by replay: its build names none."""
    return "nearest_arithmetic" in statistics


def of_output(output: str, rows: Sequence[Mapping[str, Any]]) -> OutputArithmetic:
    """Return the models of an output from the statistics of at least one replayed seed."""
    programs = counted(Counter(row.get("arithmetic") for row in rows))
    nearest = counted(
        Counter(row["nearest_arithmetic"] for row in rows if row.get("arithmetic") is None)
    )
    return OutputArithmetic(
        output,
        next(iter(programs)),
        programs,
        next(iter(nearest), None),
        len(rows),
        shared_limits(row["detection_limits"] for row in rows if "detection_limits" in row),
    )


def of_results(rows: Iterable[Mapping[str, Any]]) -> tuple[OutputArithmetic, ...]:
    """Return the models of each replayed output of result rows, in the rows' order of outputs."""
    outputs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for output, statistics in (row.get("outputs") or {}).items():
            if was_replayed(statistics):
                outputs.setdefault(output, []).append(statistics)
    return tuple(of_output(output, outputs[output]) for output in outputs)


def meaning(name: str | None) -> str:
    """Return what a name means, in sentences; "" for one that is not known here."""
    if name is None or name == UNKNOWN:
        return "No arithmetic model that is known here reproduces the output."
    if name in ARITHMETICS:
        return f"The build names the arithmetic model {name}; its budget is the ruler."
    program = ProgramName.parse(name)
    if program is None:
        return ""
    sentences = ["Between the inputs and the output, all values stay in fp32."]
    if program.stored:
        formats = next(iter(program.stored.values()))
        sentences = [f"It stores {_listed(program.stored)} in {formats}; the rest stays in fp32."]
    for trait in program.traits:
        if trait.startswith(_COLUMN_SUMS):
            sentences.append(f"Columns are added up as {trait.removeprefix(_COLUMN_SUMS)}.")
        elif trait in _TRAITS:
            sentences.append(_TRAITS[trait])
    return " ".join(sentences)


def difference(before: str, after: str) -> str:
    """Return how a kernel's program changed, such as "x^ is now stored in bf16"."""
    old, new = _visible(before), _visible(after)
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
