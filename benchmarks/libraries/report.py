"""The report: the acceptance table, each library and format, misses, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from benchmarks import samples
from benchmarks.libraries.acceptance import (
    NOT_MEASURED,
    ROWS,
    Row,
    diagnosed_seeds,
    false_alarms,
    is_clear,
    is_right,
    misses,
)
from benchmarks.libraries.cases import FORMATS
from benchmarks.libraries.intervals import Share
from benchmarks.libraries.judge import (
    SUSPECT,
    UNEXPLAINED,
    can_judge,
    diagnosis_lines,
    leading_term,
)
from benchmarks.libraries.trials import Trial, is_judge_error


def print_report(
    trials: Sequence[Trial],
    versions: Mapping[str, Mapping[str, str]],
    left_out: Sequence[str],
    limit: int | None,
) -> bool:
    """Print everything; return whether every requested share is reached.

    limit: the number of misses and of false alarms to name; None: all.
    """
    console = Console(highlight=False, markup=False, width=180)
    console.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, no arithmetic named")
    console.print(samples.sentence("libraries"))
    for library, numbers in versions.items():
        console.print(f"  {library}: " + ", ".join(f"{k} {v}" for k, v in numbers.items()))
    formats = [name for name in FORMATS if any(trial.case.format == name for trial in trials)]
    is_reached = True
    table = Table(title="Acceptance: share and its 95 % interval", title_justify="left")
    for heading in ("", "requested", *formats):
        table.add_column(heading)
    for row in ROWS:
        shares = {
            name: row.count([trial for trial in trials if trial.case.format == name])
            for name in formats
        }
        holds = [row.holds(share, name) for name, share in shares.items()]
        is_reached = is_reached and False not in holds
        table.add_row(
            row.title,
            _requested(row, formats),
            *(
                f"{share.text()}{'' if good is not False else '  !'}"
                for share, good in zip(shares.values(), holds, strict=True)
            ),
        )
    console.print(table)
    console.print(_libraries(trials))
    console.print(_sources(trials))
    _print_trials(
        console, "right kernels that are flagged", "false alarm", false_alarms(trials), limit
    )
    _print_trials(console, "mutants that aren't flagged", "missed", misses(trials), limit)
    console.print(_diagnoses(trials))
    raised = [row for trial in trials for row in trial.outcomes if is_judge_error(row)]
    console.print(f"seeds on which the judge raised an error: {len(raised)}")
    for row_of_seed in raised:
        console.print(f"  {row_of_seed.problem}; {_replay(row_of_seed.run.name)}", soft_wrap=True)
    for line in (*left_out, *_listed(trials), *_problems(trials)):
        console.print(f"left out: {line}")
    for line in NOT_MEASURED:
        console.print(f"not measured here: {line}")
    return is_reached and not raised


def _requested(row: Row, formats: Sequence[str]) -> str:
    limits = [row.limit(name) for name in formats]
    if not limits or limits[0] is None:
        return "none"
    sign = "<=" if row.at_most else ">="
    texts = [f"{100 * limit:.3g}" for limit in limits if limit is not None]
    return f"{sign} {texts[0] if len(set(texts)) == 1 else ', '.join(texts)} %"


def _libraries(trials: Sequence[Trial]) -> Table:
    table = Table(title="Right kernels, by library and format", title_justify="left")
    for heading in ("library", "format", "tests", "unexplained", "suspect", "inconclusive"):
        table.add_column(heading)
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if is_right(trial):
            groups.setdefault((trial.library, trial.case.format), []).append(trial)
    for (library, number_format), rows in sorted(groups.items()):
        levels = Counter(trial.explanation for trial in rows)
        others = len(rows) - sum(levels[name] for name in ("explained", SUSPECT, UNEXPLAINED))
        table.add_row(
            library,
            number_format,
            str(len(rows)),
            Share(levels[UNEXPLAINED], len(rows)).text(),
            str(levels[SUSPECT]),
            str(others),
        )
    return table


def _sources(trials: Sequence[Trial]) -> Table:
    table = Table(
        title="Clear mutants that are flagged, by source and format", title_justify="left"
    )
    for heading in ("kind", "source", *FORMATS):
        table.add_column(heading)
    groups: dict[tuple[str, str], dict[str, list[Trial]]] = {}
    for trial in trials:
        if trial.mutant is not None and is_clear(trial):
            rows = groups.setdefault((trial.case.kind, trial.mutant.source.name), {})
            rows.setdefault(trial.case.format, []).append(trial)
    for (kind, source), by_format in sorted(groups.items()):
        cells = []
        for name in FORMATS:
            rows_of_format = by_format.get(name, [])
            flagged = sum(trial.is_flagged for trial in rows_of_format)
            cells.append(f"{flagged} of {len(rows_of_format)}" if rows_of_format else "")
        table.add_row(kind, source, *cells)
    return table


def _diagnoses(trials: Sequence[Trial]) -> Table:
    table = Table(title="Diagnoses that don't lead with the right term", title_justify="left")
    for heading in ("edit", "leads with", "seeds", "for example"):
        table.add_column(heading, overflow="fold")
    groups: dict[tuple[str, str], list[str]] = {}
    for trial, row, is_named in diagnosed_seeds(trials):
        if trial.mutant is not None and row.judgment is not None and not is_named:
            edit = trial.mutant.edit
            lines = diagnosis_lines(row.judgment.words, edit.outputs)
            leading = leading_term(lines) or "no term"
            groups.setdefault((edit.name, leading), []).append(row.run.name)
    for (edit_name, leading), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        table.add_row(edit_name, leading, str(len(names)), names[0])
    return table


def _print_trials(
    console: Console, heading: str, title: str, trials: Sequence[Trial], limit: int | None
) -> None:
    console.print(f"{heading}: {len(trials)}")
    for trial in trials[:limit]:
        worst = _worst_seed(trial)
        console.print(
            f"  {title}: {trial.explanation}, error {trial.excess:.3g} x the worst right kernel's; "
            f"{_replay(worst)}",
            soft_wrap=True,
        )
    if limit is not None and len(trials) > limit:
        console.print(f"  and {len(trials) - limit} more: --limit 0 names all")


def _replay(name: str) -> str:
    return f"python -m benchmarks.libraries --replay '{name}'"


def _worst_seed(trial: Trial) -> str:
    """Return the name of the seed that shows most."""
    order = {UNEXPLAINED: 2, SUSPECT: 1}
    judged = [row for row in trial.outcomes if row.judgment is not None]
    rows = judged or trial.outcomes
    worst = max(
        rows,
        key=lambda row: order.get(row.judgment.explanation, 0) if row.judgment else 0,
    )
    return worst.run.name


def _listed(trials: Iterable[Trial]) -> list[str]:
    """Return the listed failures that happened, with the number of tests."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for trial in trials:
        for reason in {reason for row in trial.outcomes for reason in row.reasons}:
            counts[trial.library, trial.kernel, reason] += 1
    return [
        f"{library} {kernel}, {count} tests, a listed failure: {reason}"
        for (library, kernel, reason), count in sorted(counts.items())
    ]


def _problems(trials: Iterable[Trial]) -> list[str]:
    """Return the problems of outputs and the kinds that can't be judged, with numbers of tests."""
    counts: Counter[tuple[str, str]] = Counter()
    for trial in trials:
        if not can_judge(trial.case.kind):
            counts["all libraries", f"GoNoGo has no kernel {trial.case.kind}"] += 1
        rows = [row for row in trial.outcomes if not is_judge_error(row)]
        for problem in {row.problem for row in rows if row.problem is not None}:
            counts[trial.library, problem] += 1
    return [
        f"{library}, {count} tests: {text}" for (library, text), count in sorted(counts.items())
    ]
