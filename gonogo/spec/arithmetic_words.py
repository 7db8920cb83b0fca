"""The arithmetics of a job's outputs: which explain how many seeds, and what stays hidden by them.

Results store names and sentences only, so that this module reads them without NumPy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.spec.verdicts import Explanation

READ = ("arithmetic", "detection_limits", "is_wide")
"""The statistics that `of_output` reads, besides the explanation."""
NONE = "none explains it"
SHOWN = 3
"""Faults that a phrase of limits names; more are counted."""
_STORED = re.compile(r"(?P<value>.+) is (?:stored in|truncated to) (?P<form>\S+)(?P<where>.*)")
_SIZE = re.compile(r"(?<=below )\d[\d.]*(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class ArithmeticCount:
    """The number of seeds that an arithmetic explains."""

    arithmetic: str | None
    """null: none explains them"""
    seeds: int


@dataclass(frozen=True)
class OutputArithmetic:
    """The arithmetics of an output over several seeds."""

    output: str
    arithmetic: str | None
    """The one of most seeds, such as "tt-train" or "blocked sums"; null where none explains most"""
    closest: str | None
    """The closest one of the seeds that none explains; null if all are explained"""
    counts: list[ArithmeticCount]
    """All of them, the most frequent first"""
    seeds: int
    """The seeds that were read: the first ones of the job"""
    detection_limits: list[str]
    """The faults that none of the explained seeds could have seen"""
    is_wide: bool
    """Whether only 16-bit operations in an unknown order explain a seed"""
    model: str
    """The arithmetics in one line"""
    words: str
    """The arithmetics and the detection limits in one line"""


def of_output(output: str, entries: Sequence[Mapping[str, Any]]) -> OutputArithmetic:
    """Return the arithmetics of an output from its entries, at least one.

    An entry is of a seed: it has the output's explanation, and an arithmetic.
    """
    explained = [entry for entry in entries if entry["explanation"] == Explanation.explained]
    names: Counter[str | None] = Counter(str(entry["arithmetic"]) for entry in explained)
    missed = [entry for entry in entries if entry["explanation"] != Explanation.explained]
    closest = Counter(str(entry["arithmetic"]) for entry in missed).most_common(1)
    if missed:
        names[None] = len(missed)
    counts = [ArithmeticCount(name, seeds) for name, seeds in names.most_common()]
    limits = shared_limits(entry.get("detection_limits") or () for entry in explained)
    model = "; ".join(
        f"{count.arithmetic or NONE} in {count.seeds:,} of {len(entries):,} seeds"
        for count in counts
    )
    if not missed and len(counts) == 1:
        model = str(counts[0].arithmetic)
    if closest:
        model += f" (closest: {closest[0][0]})"
    hidden = f"; {unseen(limits)}" if limits else ""
    return OutputArithmetic(
        output=output,
        arithmetic=counts[0].arithmetic,
        closest=closest[0][0] if closest else None,
        counts=counts,
        seeds=len(entries),
        detection_limits=list(limits),
        is_wide=any(bool(entry.get("is_wide")) for entry in explained),
        model=model,
        words=f"arithmetic of {output}: {model}{hidden}",
    )


def of_results(rows: Iterable[Mapping[str, Any]]) -> tuple[OutputArithmetic, ...]:
    """Return the arithmetics of each output of result rows that has one, in the rows' order."""
    outputs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for output, entry in (row.get("outputs") or {}).items():
            if entry.get("arithmetic"):
                outputs.setdefault(output, []).append(entry)
    return tuple(of_output(output, outputs[output]) for output in outputs)


def unseen(limits: Sequence[str]) -> str:
    """Return the detection limits as one phrase, the first faults and all sizes; "" for none."""
    faults = [phrase for phrase in limits if not _SIZE.search(phrase)]
    sizes = [phrase for phrase in limits if _SIZE.search(phrase)]
    more = len(faults) - SHOWN
    others = [f"{more} more faults" if more > 1 else faults[-1]] if more > 0 else []
    shown = [*faults[:SHOWN], *others, *sizes]
    return f"couldn't have seen: {'; '.join(shown)}" if shown else ""


def grouped(limits: Sequence[str]) -> tuple[str, ...]:
    """Return the detection limits in few phrases, the sizes first.

    Values that could be stored in the same formats stand together: a wide arithmetic hides a
    hundred such faults.
    """
    sizes = [phrase for phrase in limits if _SIZE.search(phrase)]
    others: list[str] = []
    forms: dict[tuple[str, str], dict[str, None]] = {}
    for phrase in limits:
        if match := _STORED.fullmatch(phrase):
            forms.setdefault((match["value"], match["where"]), {})[match["form"]] = None
        elif phrase not in sizes:
            others.append(phrase)
    values: dict[tuple[str, str], list[str]] = {}
    for (value, where), of_value in forms.items():
        values.setdefault((", ".join(of_value), where), []).append(value)
    stored = [
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} stored in {form}{where}"
        for (form, where), names in values.items()
    ]
    return (*sizes, *others, *stored)


def shared_limits(seeds: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the faults that none of several seeds could have seen.

    A fault that one seed can see isn't a limit of all. Of a size, such as "factors below 1.003",
    the smallest counts.
    """
    shared: dict[str, str] | None = None
    for limits in seeds:
        here = {_SIZE.sub("", phrase): phrase for phrase in limits}
        if shared is None:
            shared = here
            continue
        shared = {
            kind: min(phrase, here[kind], key=_size)
            for kind, phrase in shared.items()
            if kind in here
        }
    return tuple((shared or {}).values())


def _size(phrase: str) -> float:
    match = _SIZE.search(phrase)
    return float(match[0]) if match else 0.0
