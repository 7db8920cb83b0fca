"""The words at the end of a run of pytest: which passes are hollow, which reds are right, how loose
the other tolerances are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gonogo.public.recorded import RED_BUT_RIGHT, Comparison, factor
from gonogo_pytest.records import Record

MOST_SHOWN = 20
LOOSE = 8.0
"""Half ulps: a right kernel's last rounding needs one, and its budget a few; what is above is worth
a line."""

Group = tuple[str, str | None]


def write(terminal: Any, records: Sequence[Record], ended: Iterable[str]) -> None:
    """Nothing where nothing was compared and nothing is to be said of the numbers."""
    pairs = [(record, each) for record in records for each in record.comparisons]
    lines = list(ended)
    if not pairs and not lines:
        return
    hollow = _groups((record, each) for record, each in pairs if each.hollow)
    terminal.write_sep(
        "=", f"gonogo: {len(hollow)} hollow" if hollow else "gonogo", yellow=bool(hollow)
    )
    _titled(terminal, "HOLLOW", hollow, yellow=True)
    _titled(
        terminal,
        "RED BUT RIGHT",
        _groups(pair for pair in pairs if pair[1].verdict == RED_BUT_RIGHT),
        cyan=True,
    )
    _titled(terminal, "NOT JUDGED", _groups(pair for pair in pairs if pair[1].problem), red=True)
    _not_judged(
        terminal,
        [pair for pair in pairs if pair[1].verdict == "not_judged" and not pair[1].problem],
    )
    if pairs:
        counts = Counter(each.verdict for _, each in pairs)
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        tests = len({record.name for record, _ in pairs})
        terminal.write_line(
            f"{len(pairs)} comparison{'s' * (len(pairs) != 1)} of {tests} test{'s' * (tests != 1)}: {told}"
        )
    for line in lines:
        terminal.write_line(line)


def _groups(
    pairs: Iterable[tuple[Record, Comparison]],
) -> dict[Group, list[tuple[Record, Comparison]]]:
    """Return the seeds of a test side by side."""
    found: dict[Group, list[tuple[Record, Comparison]]] = {}
    for record, each in pairs:
        found.setdefault((record.name, each.name), []).append((record, each))
    return found


def _titled(
    terminal: Any, title: str, groups: dict[Group, list[tuple[Record, Comparison]]], **colour: bool
) -> None:
    """A line for each test, with its seeds, and below it the words of the first."""
    for shown, ((test, name), pairs) in enumerate(groups.items()):
        if shown == MOST_SHOWN:
            terminal.write_line(f"... and {len(groups) - shown} more {title}")
            return
        terminal.write(title, **colour)
        terminal.write_line(f" {test}{_seeds(pairs)}{f' ({name})' if name else ''}")
        first = pairs[0][1]
        for line in (first.problem or first.words).splitlines():
            terminal.write_line(f"  {line}")


def _not_judged(terminal: Any, pairs: Sequence[tuple[Record, Comparison]]) -> None:
    """How many times the output format's own rounding the tolerance is, of those where it is many
    times, or less than once.
    """
    lines = []
    for (test, name), group in _groups(pairs).items():
        for output in group[0][1].outputs:
            found = [each.outputs[output] for _, each in group if output in each.outputs]
            times = [
                each["tolerance_roundings"]
                for each in found
                if each.get("tolerance_roundings") is not None
            ]
            least = [
                each["tolerance_roundings_least"]
                for each in found
                if each.get("tolerance_roundings_least") is not None
            ]
            tight = bool(least) and min(least) < 1
            if not times or not (tight or min(times) > LOOSE):
                continue
            where = (
                f"{test}{_seeds(group)}"
                + (f" ({name})" if name else "")
                + (f" {output}" if output != "actual" else "")
            )
            words = f"{_span(times)} times {found[0]['format']}'s own rounding"
            used = [
                each["tolerance_ratio"] for each in found if each.get("tolerance_ratio") is not None
            ]
            if used:
                most = max(used)
                words += (
                    f", of which {most:.2g} was used"
                    if most <= 1
                    else f", and the error {factor(most)} times the tolerance"
                )
            words += (
                f"; at some values only {min(least):.2g} times: a right kernel can fail"
                if tight
                else ""
            )
            lines.append((not tight, -max(times), f"not_judged: {where}: the tolerance is {words}"))
    for _, _, line in sorted(lines)[:MOST_SHOWN]:
        terminal.write_line(line)
    if len(lines) > MOST_SHOWN:
        terminal.write_line(f"... and {len(lines) - MOST_SHOWN} more not judged")


def _seeds(pairs: Sequence[tuple[Record, Comparison]]) -> str:
    seeds = sorted({record.seed for record, _ in pairs if record.seed is not None})
    if not seeds:
        return ""
    if len(seeds) == 1:
        return f" seed {seeds[0]}"
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return (
        f" seeds {seeds[0]}-{seeds[-1]}"
        if whole
        else f" seeds {', '.join(map(str, seeds[:8]))}{', ...' * (len(seeds) > 8)}"
    )


def _span(values: Sequence[float]) -> str:
    low, high = factor(min(values)), factor(max(values))
    return low if low == high else f"{low} to {high}"
