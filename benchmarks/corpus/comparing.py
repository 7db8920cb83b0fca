"""Differences between two tables of verdicts, grouped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from benchmarks.corpus.run import Run

Table = Mapping[str, Mapping[str, Any]]


def differences(before: Table, after: Table) -> list[tuple[str, list[str]]]:
    """Return what differs in words with the ids that it holds for, the largest group first.

    Only runs that both tables have are compared. Outputs that differ in bits are a group of their
    own: their verdicts may differ for that reason.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        about = f"{old['size']}, {Run.of(name).source}"
        if old["digest"] != new["digest"]:
            groups[f"{about}: the outputs have other bits"].append(name)
            continue
        for column in ("size", "verdict", "explanation"):
            if old.get(column) != new.get(column):
                groups[f"{about}: {column} {old.get(column)} -> {new.get(column)}"].append(name)
        for output in old["outputs"].keys() & new["outputs"].keys():
            for place, column in ((1, "arithmetic"), (2, "fault")):
                if old["outputs"][output][place] != new["outputs"][output][place]:
                    groups[f"{about}: {column} of {output}"].append(name)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
