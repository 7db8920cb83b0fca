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

Pair = tuple[Record, Comparison]
Groups = Mapping[tuple[str, str | None], Sequence[Pair]]
"""(test, name of the comparison) -> its records and comparisons, one for each seed."""


def write(terminal: Any, records: Sequence[Record], ended: Iterable[str]) -> None:
    """Write the summary; nothing if there were no comparisons and no messages."""
    pairs = [(record, comparison) for record in records for comparison in record.comparisons]
    lines = list(ended)
    if not pairs and not lines:
        return
    hollow = _groups(pair for pair in pairs if pair[1].hollow)
    weak = _weak_groups(pair for pair in pairs if pair[1].weakness)
    suspect = _groups(pair for pair in pairs if pair[1].explanation == SUSPECT)
    alarms = _groups(pair for pair in pairs if pair[1].verdict == FALSE_ALARM)
    problems = _groups(pair for pair in pairs if pair[1].problem)
    not_judged = [pair for pair in pairs if pair[1].verdict == "not_judged" and not pair[1].problem]
    count = len(hollow) + len(weak)
    terminal.write_sep("=", f"gonogo: {count} hollow" if count else "gonogo", yellow=bool(count))
    for title, groups, statistic, color in (
        ("HOLLOW PASS", hollow, "rounding_ratio", "yellow"),
        ("HOLLOW GATE", weak, "tolerance_ratio", "yellow"),
        ("SUSPECT", suspect, "rounding_ratio", "yellow"),
        ("FALSE ALARM", alarms, "tolerance_ratio", "cyan"),
        ("NOT JUDGED", problems, "", "red"),
    ):
        _titled(terminal, title, groups, statistic, color)
    loose = [line for _, _, line in sorted(_loose(_groups(not_judged)))]
    for line in loose[:MAX_SHOWN]:
        terminal.write_line(line)
    if len(loose) > MAX_SHOWN:
        terminal.write_line(f"... and {len(loose) - MAX_SHOWN} more not judged")
    if pairs:
        # Imported here: it takes pydantic along, and most runs of pytest compare nothing
        from gonogo.spec.verdicts import Verdict

        counts = Counter(comparison.verdict for _, comparison in pairs)
        verdicts = ", ".join(
            f"{number} {Verdict(name).label.lower()}" for name, number in sorted(counts.items())
        )
        tests = len({record.name for record, _ in pairs})
        terminal.write_line(
            f"{len(pairs)} comparison{'s' * (len(pairs) != 1)} of {tests}"
            f" test{'s' * (tests != 1)}: {verdicts}"
        )
    for line in lines:
        terminal.write_line(line)


def _groups(pairs: Iterable[Pair]) -> dict[tuple[str, str | None], list[Pair]]:
    """Return the records and comparisons by test and name, so that seeds stand together."""
    groups: dict[tuple[str, str | None], list[Pair]] = {}
    for record, comparison in pairs:
        groups.setdefault((record.name, comparison.name), []).append((record, comparison))
    return groups


def _weak_groups(pairs: Iterable[Pair]) -> Groups:
    """Return captured comparisons that say nothing, the worst reason first."""
    groups: dict[tuple[str, str | None], list[Pair]] = {}
    for record, comparison in pairs:
        group = record.name.partition("[")[0], comparison.name
        groups.setdefault(group, []).append((record, comparison))
    if not groups:
        return {}
    # Imported here: it takes NumPy along, and most runs capture nothing
    from gonogo.capture.weaknesses import WORST_FIRST

    worst = {
        group: min(WORST_FIRST.index(comparison.weakness) for _, comparison in members)
        for group, members in groups.items()
    }
    return {group: groups[group] for group in sorted(groups, key=lambda group: worst[group])}


def _titled(terminal: Any, title: str, groups: Groups, statistic: str, color: str) -> None:
    """Write a line for each test, with its seeds, and below it the words of the worst."""
    for shown, (group, pairs) in enumerate(groups.items()):
        if shown == MAX_SHOWN:
            terminal.write_line(f"... and {len(groups) - shown} more {title}")
            return
        terminal.write(title, **{color: True})
        if not statistic:
            reason = " ".join(pairs[0][1].problem.split())
            terminal.write_line(f" {_place(group, pairs)}: {reason}")
            continue
        record, comparison = max(pairs, key=lambda pair: _size(pair[1], statistic))
        worst = f", worst: seed {record.seed}" if len(pairs) > 1 and record.seed is not None else ""
        terminal.write_line(f" {_place(group, pairs)}{worst}")
        for line in comparison.words.splitlines():
            terminal.write_line(f"  {line}")


def _size(comparison: Comparison, statistic: str) -> float:
    """Return the largest value of a statistic over the outputs; NaN and Inf are the largest."""
    values = [
        math.inf if numbers.get("nonfinite") else numbers.get(statistic)
        for numbers in comparison.outputs.values()
    ]
    return max((value for value in values if value is not None), default=-math.inf)


def strict_lines(
    hollow: Sequence[Record], together: Sequence[Record], tests: int, *, is_strict: bool
) -> list[str]:
    """Return the line on the effect of --gonogo-strict: what it would do, or in strict mode did.

    hollow: the tests that it turns red. together: those that passed and whose seeds, together,
    fail the run. tests: the number of all that ran.
    """
    what = "fails the run for" if is_strict else "would fail"
    records = together if is_strict else [*hollow, *together]
    if not records:
        return []
    groups = _groups((record, Comparison()) for record in records)
    places = [_place(group, pairs) for group, pairs in groups.items()]
    more = f" and {len(places) - MAX_NAMED} more" if len(places) > MAX_NAMED else ""
    named = ", ".join(places[:MAX_NAMED])
    return [f"--gonogo-strict {what} {len(records)} of {tests} tests: {named}{more}"]


def _loose(groups: Groups) -> Iterable[tuple[bool, float, str]]:
    """Yield how loose the tolerances are, as multiples of the output format's own rounding.

    Only tolerances of many times, or less than once, the rounding are of interest. Each has its
    sort key before its line: tight ones come first, then the loosest.
    """
    for key, group in groups.items():
        for output in group[0][1].outputs:
            entries = [pair[1].outputs[output] for pair in group if output in pair[1].outputs]

            def known(name: str, entries: Sequence[Mapping[str, Any]] = entries) -> list[float]:
                return [entry[name] for entry in entries if entry.get(name) is not None]

            times, least = known("tolerance_roundings"), known("tolerance_roundings_least")
            used = known("tolerance_ratio")
            tight = bool(least) and min(least) < 1
            if not times or not (tight or min(times) > LOOSE):
                continue
            low, high = factor(min(times)), factor(max(times))
            span = low if low == high else f"{low} to {high}"
            words = f"{span} times {entries[0]['format']}'s own rounding"
            if used and max(used) <= 1:
                words += f", of which {max(used):.2g} was used"
            elif used:
                words += f", and the error {factor(max(used))} times the tolerance"
            if tight:
                words += f"; at some values only {min(least):.2g} times: a right kernel can fail"
            where = _place(key, group) + (f" {output}" if output != "actual" else "")
            line = f"Not judged: {where}: the tolerance is {words}"
            yield not tight, -max(times), line


def _place(group: tuple[str, str | None], pairs: Sequence[Pair]) -> str:
    """Return the test with its seeds, and the name of the comparison."""
    test, name = group
    seeds = sorted({record.seed for record, _ in pairs if record.seed is not None})
    words = ""
    if len(seeds) == 1:
        words = f" seed {seeds[0]}"
    elif seeds and seeds == list(range(seeds[0], seeds[-1] + 1)):
        words = f" seeds {seeds[0]}-{seeds[-1]}"
    elif seeds:
        words = f" seeds {', '.join(map(str, seeds[:8]))}{', ...' * (len(seeds) > 8)}"
    return f"{test}{words}" + (f" ({name})" if name else "")
