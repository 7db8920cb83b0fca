"""The summary at the end of a pytest run: hollow passes, false alarms, and loose tolerances."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gonogo.public.recorded import FALSE_ALARM, SUSPECT, Comparison, factor
from gonogo.pytest_plugin.records import Record

MAX_SHOWN = 20
LOOSE = 8.0
"""A limit in half ulps: a right kernel's last rounding needs one, and what it stores a few; more is
worth a line."""

MAX_NAMED = 5
"""Tests that one line names."""

Group = tuple[str, str | None]
"""(test, name of the comparison)"""
Pair = tuple[Record, Comparison]


def write(terminal: Any, records: Sequence[Record], ended: Iterable[str]) -> None:
    """Write the summary; nothing if there were no comparisons and no messages."""
    pairs = [(record, comparison) for record in records for comparison in record.comparisons]
    lines = list(ended)
    if not pairs and not lines:
        return
    hollow = _groups((record, comparison) for record, comparison in pairs if comparison.hollow)
    weak = _weak_groups(pair for pair in pairs if pair[1].weakness)
    count = len(hollow) + len(weak)
    terminal.write_sep("=", f"gonogo: {count} hollow" if count else "gonogo", yellow=bool(count))
    _titled(terminal, "HOLLOW PASS", hollow, ("rounding_ratio",), yellow=True)
    _titled(terminal, "HOLLOW GATE", weak, ("tolerance_ratio",), yellow=True)
    _titled(
        terminal,
        "SUSPECT",
        _groups(pair for pair in pairs if pair[1].explanation == SUSPECT),
        ("rounding_ratio",),
        yellow=True,
    )
    _titled(
        terminal,
        "FALSE ALARM",
        _groups(pair for pair in pairs if pair[1].verdict == FALSE_ALARM),
        ("tolerance_ratio",),
        cyan=True,
    )
    _problems(terminal, _groups(pair for pair in pairs if pair[1].problem))
    _not_judged(
        terminal,
        [pair for pair in pairs if pair[1].verdict == "not_judged" and not pair[1].problem],
    )
    if pairs:
        # Imported here: it takes pydantic along, and most runs of pytest compare nothing
        from gonogo.spec.verdicts import Verdict

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


def _groups(pairs: Iterable[Pair]) -> dict[Group, list[Pair]]:
    """Return the records and comparisons by test and name, so that seeds stand together."""
    groups: dict[Group, list[Pair]] = {}
    for record, comparison in pairs:
        groups.setdefault((record.name, comparison.name), []).append((record, comparison))
    return groups


def _weak_groups(pairs: Iterable[Pair]) -> dict[Group, list[Pair]]:
    """Return captured comparisons that say nothing, the worst reason first.

    The parameters of a test stand together.
    """
    groups: dict[Group, list[Pair]] = {}
    for record, comparison in pairs:
        group = record.name.partition("[")[0], comparison.name
        groups.setdefault(group, []).append((record, comparison))
    if not groups:
        return {}
    # Imported here: it takes NumPy along, and most runs capture nothing
    from gonogo.capture.weaknesses import WORST_FIRST

    def place(item: tuple[Group, list[Pair]]) -> int:
        return min(WORST_FIRST.index(comparison.weakness) for _, comparison in item[1])

    return dict(sorted(groups.items(), key=place))


def _titled(
    terminal: Any,
    title: str,
    groups: Mapping[Group, Sequence[Pair]],
    statistics: Sequence[str],
    **color: bool,
) -> None:
    """Write a line for each test, with its seeds, and below it the words of the worst.

    statistics: what a seed is the worst by, the first of them first.
    """
    for shown, (group, pairs) in enumerate(groups.items()):
        if shown == MAX_SHOWN:
            terminal.write_line(f"... and {len(groups) - shown} more {title}")
            return
        record, comparison = max(pairs, key=lambda pair: _size(pair[1], statistics))
        worst = f", worst: seed {record.seed}" if len(pairs) > 1 and record.seed is not None else ""
        terminal.write(title, **color)
        terminal.write_line(f" {_place(group, pairs)}{worst}")
        for line in comparison.words.splitlines():
            terminal.write_line(f"  {line}")


def _size(comparison: Comparison, statistics: Sequence[str]) -> tuple[float, ...]:
    """Return the largest value of each statistic over the outputs; NaN and Inf are the largest."""

    def largest(name: str) -> float:
        values = [
            math.inf if numbers.get("nonfinite") else numbers.get(name)
            for numbers in comparison.outputs.values()
        ]
        return max((value for value in values if value is not None), default=-math.inf)

    return tuple(map(largest, statistics))


def _problems(terminal: Any, groups: Mapping[Group, Sequence[Pair]]) -> None:
    """Write one line for each test with comparisons that can't be judged; it stays as it was."""
    for shown, (group, pairs) in enumerate(groups.items()):
        if shown == MAX_SHOWN:
            terminal.write_line(f"... and {len(groups) - shown} more NOT JUDGED")
            return
        reason = " ".join(pairs[0][1].problem.split())
        terminal.write("NOT JUDGED", red=True)
        terminal.write_line(f" {_place(group, pairs)}: {reason}")


def strict_lines(
    hollow: Sequence[Record], together: Sequence[Record], tests: int, *, is_strict: bool
) -> list[str]:
    """Return what --gonogo-strict would do to this run, or, in strict mode, did at its end.

    hollow: the tests that it turns red. together: those that passed and whose seeds, together,
    fail the run. tests: the number of all that ran.
    """
    if is_strict:
        return _strict_line("fails the run for", together, tests)
    return _strict_line("would fail", [*hollow, *together], tests)


def _strict_line(what: str, hollow: Sequence[Record], tests: int) -> list[str]:
    groups = _groups((record, Comparison()) for record in hollow)
    places = [_place(group, pairs) for group, pairs in groups.items()]
    more = f" and {len(places) - MAX_NAMED} more" if len(places) > MAX_NAMED else ""
    return (
        [
            f"--gonogo-strict {what} {len(hollow)} of {tests} tests: "
            f"{', '.join(places[:MAX_NAMED])}{more}"
        ]
        if hollow
        else []
    )


def _not_judged(terminal: Any, pairs: Sequence[tuple[Record, Comparison]]) -> None:
    """Write how loose the tolerances are, as multiples of the output format's own rounding.

    Only tolerances of many times, or less than once, the rounding are written.
    """
    lines = []
    for key, group in _groups(pairs).items():
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
            where = _place(key, group) + (f" {output}" if output != "actual" else "")
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


def _place(group: Group, pairs: Sequence[Pair]) -> str:
    """Return the test with its seeds, and the name of the comparison."""
    test, name = group
    return f"{test}{_seeds(pairs)}" + (f" ({name})" if name else "")


def _seeds(pairs: Sequence[Pair]) -> str:
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
