"""Read model of "What got worse since a day?": each test's last build before it and its newest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import fisher
from gonogo_dashboards.kit import build_cells, words
from gonogo_dashboards.kit.build_cells import BuildCell
from gonogo_dashboards.kit.evidence_view import percent
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of, tolerance_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.results import tallies
from gonogo_service.tests import entry_names, matrices, recent_builds, standings, test_list
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.recent_builds import BuildResult
from gonogo_service.tests.variants import Variant, variants_of_all

DEFAULT_DAYS = 7
MAX_TESTS = 200
"""Tests that are compared, those that need attention first."""
RANGES = {"yesterday": 1, "last week": 7, "two weeks ago": 14, "last month": 30, "last quarter": 90}
WORSE, BETTER, SAME, NEW = "worse", "better", "same", "new"


@dataclass(frozen=True)
class ChangedLine:
    """A test at both ends of the span."""

    kind: str
    """WORSE, BETTER, SAME, or NEW: it did not run before."""
    name: str
    url: str
    where: str
    before: BuildCell | None
    after: BuildCell
    before_failed: str
    """The share of failed seeds, "" where none passed or failed."""
    after_failed: str
    change: str
    """The change of its numbers where its verdicts are of one class; else ""."""
    compare_url: str | None


@dataclass(frozen=True)
class WorseView:
    """The page: what got worse first, then what got better."""

    branch: str | None
    branches: tuple[str, ...]
    since: str
    until: str
    spans: tuple[Choice, ...]
    tests: int
    whole: bool
    """False: the branch has more tests than were compared."""
    counts: Mapping[str, int]
    items: tuple[ChangedLine, ...]
    """The tests that changed."""
    summary: str
    at: str | None


def view(session: Session, query: Mapping[str, str], now: datetime) -> WorseView:
    """Return what changed on a branch since the day `since`, up to the end of the day `until`.

    Days are UTC; an invalid one is the default: seven days ago, and today.
    """
    today = now.astimezone(UTC).date()
    since = _day(query.get("since")) or today - timedelta(days=DEFAULT_DAYS)
    until = _day(query.get("until")) or today
    known = matrices.builds(session)
    branches = tuple(dict.fromkeys(build.branch for build in known))
    branch = query.get("branch") or matrices.main_branch(known)
    heads = _worst(session, branch, now) if branch else ()
    lines = _lines(session, heads[:MAX_TESTS], branch or "", since, until)
    counts = {kind: sum(line.kind == kind for line in lines) for kind in (WORSE, BETTER, SAME, NEW)}
    given = {"branch": branch, "until": until.isoformat() if until != today else None}
    spans = []
    for label, days in RANGES.items():
        day = (today - timedelta(days=days)).isoformat()
        spans.append(
            Choice(day, label, urls.worse({**given, "since": day}), day == since.isoformat())
        )
    order = {WORSE: 0, BETTER: 1}
    changed = sorted((line for line in lines if line.kind in order), key=lambda x: order[x.kind])
    return WorseView(
        branch,
        branches if branch in branches or branch is None else (*branches, branch),
        since.isoformat(),
        until.isoformat(),
        tuple(spans),
        len(lines),
        len(heads) <= MAX_TESTS,
        counts,
        tuple(changed),
        _summary(counts, since, branch),
        timestamp(now),
    )


def _day(text: str | None) -> date | None:
    try:
        day = date.fromisoformat(text or "")
    except ValueError:
        return None
    return day if 1970 < day.year < date.max.year else None  # ids count from 1970


def _worst(session: Session, branch: str, now: datetime) -> tuple[TestSpecRow, ...]:
    stand = standings.read(session, since=now - standings.WINDOW, branch=branch)
    return test_list.worst(session, stand, branch, MAX_TESTS + 1)


def _lines(
    session: Session, heads: Sequence[TestSpecRow], branch: str, since: date, until: date
) -> list[ChangedLine]:
    tests = {head.key: head for head in heads}
    of_tests = variants_of_all(session, list(tests)).values()
    variants = [variant for some in of_tests for variant in some if variant.branch == branch]
    start = datetime.combine(since, datetime.min.time(), UTC)
    end = datetime.combine(until + timedelta(days=1), datetime.min.time(), UTC)
    before = recent_builds.results(session, variants, 1, before=start)
    after = recent_builds.results(session, variants, 1, before=end)
    entries = entry_names.latest(session, set(tests))
    ends = {
        variant: (before[variant][-1] if before.get(variant) else None, after[variant][-1])
        for variant in variants
        if after.get(variant) and after[variant][-1].at >= start  # else nothing ran in the span
    }
    alike = {
        variant: (first.build, last.build)
        for variant, (first, last) in ends.items()
        if first is not None and first.build != last.build and _kind(first, last) == SAME
    }
    errors = tallies.middle_errors(session, alike)
    listed = [
        Listed(
            tests[variant.test_key].test,
            entries.get(variant.test_key),
            place={"arch": variant.arch, "board": variant.board},
        )
        for variant in ends
    ]
    lines = []
    for (variant, (first, last)), name in zip(ends.items(), labels(listed), strict=True):
        line = _line(tests[variant.test_key], variant, name, first, last, entries)
        if variant in alike and first is not None:
            of_errors = (errors.get((variant, build), {}) for build in alike[variant])
            changes = _changes(first.counts, last.counts, *of_errors)
            if changes:
                kind = WORSE if any(worse for worse, _ in changes) else BETTER
                line = replace(line, kind=kind, change="; ".join(text for _, text in changes))
        lines.append(line)
    return lines


def _line(
    test: TestSpecRow,
    variant: Variant,
    name: str,
    first: BuildResult | None,
    last: BuildResult,
    entries: Mapping[str, str],
) -> ChangedLine:
    after, before = build_cells.cell(last), None if first is None else build_cells.cell(first)
    details = tolerance_of(test.test), details_of(test.test, entries.get(test.key))
    is_other = before is not None and before.build != after.build
    return ChangedLine(
        _kind(first, last),
        name,
        urls.history(test.key, variant.place),
        " · ".join(filter(None, (*details, variant.board))),
        before,
        after,
        "" if first is None else _failed(first.counts),
        _failed(last.counts),
        "",
        urls.compare(before.build, after.build) if before is not None and is_other else None,
    )


def _kind(before: BuildResult | None, after: BuildResult) -> str:
    if before is None:
        return NEW
    then, now = _badness(before), _badness(after)
    return SAME if then == now else WORSE if now > then else BETTER


def _badness(result: BuildResult) -> tuple[bool, bool, bool]:
    """Return how bad a result is: red, hollow, seeds without a result; the first counts most."""
    return result.red, result.hollow, result.lost


def _changes(
    counts: Mapping[str, int],
    counts_now: Mapping[str, int],
    errors: Mapping[str, float],
    errors_now: Mapping[str, float],
) -> list[tuple[bool, str]]:
    """Return (whether it is worse, in words) of what changed where the verdicts are of one class.

    The rate of failed seeds, where Fisher's exact test says so, and the largest change of an
    output's median error, where it is beyond what seeds of one build show.
    """
    changes = []
    (failed, runs), (failed_now, runs_now) = _counted(counts), _counted(counts_now)
    is_other = runs and runs_now and failed * runs_now != failed_now * runs
    if is_other and fisher(failed, runs, failed_now, runs_now) <= POLICY.significance:
        then, now = failed / runs, failed_now / runs_now
        changes.append((now > then, f"failed seeds: {percent(then)}, now {percent(now)}"))
    ratios = {name: _ratio(errors[name], errors_now[name]) for name in errors.keys() & errors_now}
    least, most = 1 / POLICY.same_factor, POLICY.same_factor
    changed = sorted((ratio, name) for name, ratio in ratios.items() if not least <= ratio <= most)
    if changed:
        ratio, name = changed[-1] if changed[-1][0] > 1 else changed[0]  # an increase comes first
        if not 0 < ratio < math.inf:
            text = f"{words.number(errors[name])}, now {words.number(errors_now[name])}"
        else:
            text = f"{ratio:.2g} times larger" if ratio > 1 else f"{1 / ratio:.2g} times smaller"
        changes.append((ratio > 1, f"error of {name}: {text}"))
    return changes


def _ratio(before: float, after: float) -> float:
    return 1.0 if before == after else math.inf if before == 0 else after / before


def _counted(counts: Mapping[str, int]) -> tuple[int, int]:
    """Return the failed seeds, and those that passed or failed."""
    red = sum(counts.get(verdict, 0) for verdict in build_cells.FAILED)
    green = ("pass", "pass_by_tolerance", "suspect")
    return red, red + sum(counts.get(verdict, 0) for verdict in green)


def _failed(counts: Mapping[str, int]) -> str:
    red, judged = _counted(counts)
    hollow = counts.get(build_cells.HOLLOW, 0)
    if not judged:
        return ""
    parts = [f"{red:,} of {judged:,} failed"] if red or not hollow else []
    parts += [f"{hollow:,} of {judged:,} hollow"] if hollow else []
    return ", ".join(parts)


def _summary(counts: Mapping[str, int], since: date, branch: str | None) -> str:
    if branch is None:
        return "No build has run yet."
    text = f"Since {since:%b} {since.day}, {since.year} on {words.brief(branch)}: "
    text += f"{words.count(counts[WORSE], 'test')} got worse, {counts[BETTER]:,} better"
    text += f", {counts[SAME]:,} stayed"
    return text + (f", {counts[NEW]:,} new." if counts[NEW] else ".")
