"""The acceptance table: each row with the requested share, and which trials count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.libraries import stated
from benchmarks.libraries.arithmetics import expected, is_right_name
from benchmarks.libraries.intervals import Share
from benchmarks.libraries.judge import UNEXPLAINED, names_term
from benchmarks.libraries.trials import Outcome, Trial

FAIL_BY_TOLERANCE: Final = "fail_by_tolerance"
CLEAR: Final[Mapping[str, float]] = {"fp32-inside": 1.25, "16-bit-storing": 2.0}
"""A mutant's error counts as clear beyond so many times the worst right kernel's."""
FAINT_BITS: Final = 3
"""Elements that a faint edit must change."""
LEAST_ELEMENTS: Final = 1000
"""Smaller tests don't count for the name of the arithmetic: several programs fit them."""
LEAST_EXACT_FEATURES: Final = 64


def is_right(trial: Trial) -> bool:
    """Return whether the trial is of a right kernel on ordinary inputs, and was judged."""
    return trial.mutant is None and trial.explanation is not None and not _is_exact(trial)


def is_clear(trial: Trial) -> bool:
    """Return whether a mutant's error exceeds the worst right kernel's clearly."""
    if trial.mutant is None or not trial.judgments or _is_exact(trial):
        return False
    return trial.excess > CLEAR[trial.mutant.source.group] and trial.changed > 0


def is_faint(trial: Trial) -> bool:
    """Return whether a mutant changes bits and logic, but isn't clear."""
    return (
        trial.mutant is not None
        and bool(trial.judgments)
        and not _is_exact(trial)
        and not is_clear(trial)
        and trial.changed >= FAINT_BITS
        and not trial.is_no_op
    )


def is_stated(trial: Trial) -> bool:
    """Return whether every seed of a mutant that isn't flagged lists its fault as a limit."""
    if trial.mutant is None:
        return False
    edit = trial.mutant.edit
    return all(
        row.judgment is None or stated.is_stated(edit, row.judgment.statistics, row.sizes)
        for row in trial.outcomes
    )


def is_exact_logic(trial: Trial) -> bool:
    """Return whether a logic edit ran in the regime `exact`, and changed an output."""
    return (
        trial.mutant is not None
        and trial.changed > 0
        and _is_exact(trial)
        and trial.case.matrix[1] >= LEAST_EXACT_FEATURES
        and trial.mutant.edit.is_logic
        and not trial.is_no_op
    )


def _is_exact(trial: Trial) -> bool:
    return trial.case.regime == "exact"


def _group(trial: Trial) -> str:
    return "" if trial.mutant is None else trial.mutant.source.group


def _stores_rstd(trial: Trial) -> bool:
    return trial.mutant is not None and "rstd" in trial.mutant.source.stored


@dataclass(frozen=True)
class Row:
    """A row of the table.

    requested: format -> the limit, a share. at_most: True where smaller is better. count: from
    trials to the measured share.
    """

    title: str
    requested: Mapping[str, float] | None
    count: Callable[[Sequence[Trial]], Share]
    at_most: bool = False

    def limit(self, number_format: str) -> float | None:
        """Return the requested share of a format, None where there is none."""
        return None if self.requested is None else self.requested[number_format]

    def holds(self, share: Share, number_format: str) -> bool | None:
        """Return whether a measured share is good enough; None where that isn't defined."""
        limit = self.limit(number_format)
        if limit is None or share.value is None:
            return None
        return share.value <= limit if self.at_most else share.value >= limit


def _same(limit: float) -> dict[str, float]:
    return dict.fromkeys(("fp32", "bf16", "fp16"), limit)


def _share(
    trials: Sequence[Trial], counts: Callable[[Trial], bool], good: Callable[[Trial], bool]
) -> Share:
    chosen = [trial for trial in trials if counts(trial)]
    return Share(sum(map(good, chosen)), len(chosen))


def _flagged(counts: Callable[[Trial], bool]) -> Callable[[Sequence[Trial]], Share]:
    return lambda trials: _share(trials, counts, lambda trial: trial.is_flagged)


def right_names(trials: Sequence[Trial]) -> Share:
    """Return how often the arithmetic's name is right, on tests with enough elements."""
    count = total = 0
    for trial in trials:
        stored = expected(trial.library, trial.kernel, trial.case.kind, trial.case.format)
        rows, features = trial.case.matrix
        if not is_right(trial) or stored is None or rows * features < LEAST_ELEMENTS:
            continue
        total += 1
        count += all(is_right_name(row.arithmetic, stored) for row in trial.judgments)
    return Share(count, total)


def _red(outcomes: Iterable[Outcome]) -> Share:
    """Return how many red seeds are called fail_by_tolerance."""
    red = [row.judgment for row in outcomes if row.judgment and not row.judgment.within]
    return Share(sum(judgment.verdict == FAIL_BY_TOLERANCE for judgment in red), len(red))


def red_wrong(trials: Sequence[Trial]) -> Share:
    """Return the acquitted red seeds of mutants that are clear or faint."""
    chosen = [trial for trial in trials if is_clear(trial) or is_faint(trial)]
    return _red(row for trial in chosen for row in trial.outcomes)


def red_clear(trials: Sequence[Trial]) -> Share:
    """Return the acquitted red seeds of clear mutants."""
    return _red(row for trial in trials if is_clear(trial) for row in trial.outcomes)


def red_right(trials: Sequence[Trial]) -> Share:
    """Return the acquitted red seeds of right kernels."""
    return _red(row for trial in trials if is_right(trial) for row in trial.outcomes)


def diagnosed_seeds(trials: Iterable[Trial]) -> Iterator[tuple[Trial, Outcome, bool | None]]:
    """Yield each unexplained seed of a clear or faint mutant, and whether its term is named."""
    for trial in trials:
        if trial.mutant is None or not (is_clear(trial) or is_faint(trial)):
            continue
        edit = trial.mutant.edit
        for row in trial.outcomes:
            if row.judgment is not None and row.judgment.explanation == UNEXPLAINED:
                yield trial, row, names_term(row.judgment.words, edit.term, edit.outputs)


def _diagnosed(trials: Sequence[Trial], answer: bool) -> Share:
    answers = [is_named for _, _, is_named in diagnosed_seeds(trials)]
    return Share(sum(is_named is answer for is_named in answers), len(answers))


ROWS: Final = (
    Row(
        "right kernels that end unexplained or suspect",
        {"fp32": 0.005, "bf16": 0.01, "fp16": 0.01},
        _flagged(is_right),
        at_most=True,
    ),
    Row("the name of the arithmetic is right (1,000 elements or more)", _same(0.95), right_names),
    Row(
        "wrong, fp32-inside, error > 1.25 x the worst right kernel's: flagged",
        _same(0.995),
        _flagged(lambda trial: is_clear(trial) and _group(trial) == "fp32-inside"),
    ),
    Row(
        "wrong, 16-bit-storing, error > 2 x: flagged",
        _same(0.97),
        _flagged(lambda trial: is_clear(trial) and _group(trial) == "16-bit-storing"),
    ),
    Row(
        "faint, fp32-inside: flagged",
        _same(0.95),
        _flagged(lambda trial: is_faint(trial) and _group(trial) == "fp32-inside"),
    ),
    Row(
        "faint, fp32-inside: flagged, or its fault is a listed detection limit",
        _same(1.0),
        lambda trials: _share(
            trials,
            lambda trial: is_faint(trial) and _group(trial) == "fp32-inside",
            lambda trial: trial.is_flagged or is_stated(trial),
        ),
    ),
    Row(
        "faint, rstd stored in 16 bits: flagged",
        _same(0.5),
        _flagged(lambda trial: is_faint(trial) and _stores_rstd(trial)),
    ),
    Row(
        "faint, other values stored in 16 bits: flagged",
        None,
        _flagged(
            lambda trial: (
                is_faint(trial) and _group(trial) == "16-bit-storing" and not _stores_rstd(trial)
            )
        ),
    ),
    Row("red wrong seeds called fail_by_tolerance", _same(0.0), red_wrong, at_most=True),
    Row("of these, clear ones", _same(0.0), red_clear, at_most=True),
    Row("red right seeds called fail_by_tolerance", _same(0.95), red_right),
    Row(
        "regime exact, logic edits that change a bit: flagged", _same(1.0), _flagged(is_exact_logic)
    ),
    Row(
        "regime exact, right kernels: flagged",
        _same(0.0),
        _flagged(lambda trial: trial.mutant is None and _is_exact(trial) and bool(trial.judgments)),
        at_most=True,
    ),
    Row(
        "diagnosis of unexplained seeds: the right term first",
        _same(0.95),
        lambda trials: _diagnosed(trials, True),
    ),
    Row(
        'diagnosis of unexplained seeds: another term, or "not a term"',
        _same(0.01),
        lambda trials: _diagnosed(trials, False),
        at_most=True,
    ),
)

NOT_MEASURED: Final = (
    "earlier figures and false alarms over 1,000 seeds: python -m benchmarks.strangers, "
    "python -m benchmarks.false_alarms",
    "cost of the default's choice on 819x8462: python -m benchmarks",
)
"""Acceptance figures that other commands measure."""


def misses(trials: Iterable[Trial]) -> list[Trial]:
    """Return the mutants that should be flagged and aren't."""
    return [
        trial
        for trial in trials
        if (is_clear(trial) or is_faint(trial) or is_exact_logic(trial)) and not trial.is_flagged
    ]


def false_alarms(trials: Iterable[Trial]) -> list[Trial]:
    """Return the right kernels that are flagged."""
    return [trial for trial in trials if trial.mutant is None and trial.is_flagged]
