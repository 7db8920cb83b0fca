"""The summary at the end of a pytest run: hollow passes, false alarms, and loose tolerances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gonogo.public.recorded import FALSE_ALARM, Comparison, factor
from gonogo.spec.verdicts import Verdict
from gonogo_pytest.records import Record

MAX_SHOWN = 20
LOOSE = 8.0
"""A limit in half ulps: a right kernel's last rounding needs one, and its budget a few; more is
worth a line."""

Group = tuple[str, str | None]


def write(terminal: Any, records: Sequence[Record], ended: Iterable[str]) -> None:
    """Write the summary; nothing if there were no comparisons and no messages."""
    pairs = [(record, comparison) for record in records for comparison in record.comparisons]
    lines = list(ended)
    if not pairs and not lines:
        return
    hollow = _groups((record, comparison) for record, comparison in pairs if comparison.hollow)
    terminal.write_sep(
        "=", f"gonogo: {len(hollow)} hollow" if hollow else "gonogo", yellow=bool(hollow)
    )
    _titled(terminal, "HOLLOW PASS", hollow, yellow=True)
    _titled(
        terminal,
        "FALSE ALARM",
        _groups(pair for pair in pairs if pair[1].verdict == FALSE_ALARM),
        cyan=True,
    )
    _titled(terminal, "NOT JUDGED", _groups(pair for pair in pairs if pair[1].problem), red=True)
    _not_judged(
        terminal,
        [pair for pair in pairs if pair[1].verdict == "not_judged" and not pair[1].problem],
    )
    if pairs:
        counts = Counter(comparison.verdict for _, comparison in pairs)
        verdicts = ", ".join(
            f"{count} {Verdict(verdict).label.lower()}" for verdict, count in sorted(counts.items())
        )
        tests = len({record.name for record, _ in pairs})
        terminal.write_line(
            f"{len(pairs)} comparison{'s' * (len(pairs) != 1)} of {tests}"
            f" test{'s' * (tests != 1)}: {verdicts}"
        )
    for line in lines:
        terminal.write_line(line)


def _groups(
    pairs: Iterable[tuple[Record, Comparison]],
) -> dict[Group, list[tuple[Record, Comparison]]]:
    """Return the records and comparisons by test and name, so that seeds stand together."""
    groups: dict[Group, list[tuple[Record, Comparison]]] = {}
    for record, comparison in pairs:
        groups.setdefault((record.name, comparison.name), []).append((record, comparison))
    return groups


def _titled(
    terminal: Any, title: str, groups: dict[Group, list[tuple[Record, Comparison]]], **color: bool
) -> None:
    """Write a line for each test, with its seeds, and below it the words of the first."""
    for shown, ((test, name), pairs) in enumerate(groups.items()):
        if shown == MAX_SHOWN:
            terminal.write_line(f"... and {len(groups) - shown} more {title}")
            return
        terminal.write(title, **color)
        terminal.write_line(f" {test}{_seeds(pairs)}{f' ({name})' if name else ''}")
        first = pairs[0][1]
        for line in (first.problem or first.words).splitlines():
            terminal.write_line(f"  {line}")


def _not_judged(terminal: Any, pairs: Sequence[tuple[Record, Comparison]]) -> None:
    """Write how loose the tolerances are, as multiples of the output format's own rounding.

    Only tolerances of many times, or less than once, the rounding are written.
    """
    lines = []
    for (test, name), group in _groups(pairs).items():
        for output in group[0][1].outputs:
            statistics = [
                comparison.outputs[output]
                for _, comparison in group
                if output in comparison.outputs
            ]
            times = [
                numbers["tolerance_roundings"]
                for numbers in statistics
                if numbers.get("tolerance_roundings") is not None
            ]
            least = [
                numbers["tolerance_roundings_least"]
                for numbers in statistics
                if numbers.get("tolerance_roundings_least") is not None
            ]
            tight = bool(least) and min(least) < 1
            if not times or not (tight or min(times) > LOOSE):
                continue
            where = (
                f"{test}{_seeds(group)}"
                + (f" ({name})" if name else "")
                + (f" {output}" if output != "actual" else "")
            )
            words = f"{_span(times)} times {statistics[0]['format']}'s own rounding"
            used = [
                numbers["tolerance_ratio"]
                for numbers in statistics
                if numbers.get("tolerance_ratio") is not None
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
            lines.append((not tight, -max(times), f"Not judged: {where}: the tolerance is {words}"))
    for _, _, line in sorted(lines)[:MAX_SHOWN]:
        terminal.write_line(line)
    if len(lines) > MAX_SHOWN:
        terminal.write_line(f"... and {len(lines) - MAX_SHOWN} more not judged")


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
