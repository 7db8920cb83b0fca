"""Differences between two tables of verdicts, grouped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks.corpus.acceptance import Judged

NAMED: Final = 3
"""Runs of a group that are named."""
Tables = Mapping[str, Mapping[str, Any]]


def differences(before: Tables, after: Tables) -> Iterator[tuple[str, list[str]]]:
    """Yield what differs in words and the ids that it holds for, the largest group first.

    Only runs that both tables have are compared. Outputs that differ in bits are a group of their
    own: their verdicts may differ for that reason.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        about = f"{old['size']}, {Judged.of(old).run.source}"
        if old["digest"] != new["digest"]:
            groups[f"{about}: the outputs have other bits"].append(name)
            continue
        for column in ("size", "verdict", "explanation"):
            if old.get(column) != new.get(column):
                groups[f"{about}: {column} {old.get(column)} -> {new.get(column)}"].append(name)
        for output, answer in old["outputs"].items():
            if output in new["outputs"]:
                for place, column in ((1, "arithmetic"), (2, "fault")):
                    if answer[place] != new["outputs"][output][place]:
                        groups[f"{about}: {column} of {output}"].append(name)
    yield from sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
