"""Read the flips of two builds: a common factor, or rows whose rstd moved by a step.

It reads the stored counts of gonogo.judging.flips, without NumPy, since the API does it for a page.

Three things must hold before a factor is reported. The flips point one way in enough rows (a sign
test: right builds that differ in the order of their sums move each row by its own error, up or
down). The factor's interval stays clear of zero. And it stays clear of what two right fp32
arithmetics may differ by in every row: `fp32_factor`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MIN_FLIPS, MIN_ROWS = 6, 6
"""Flips that point one way, and rows whose majority does, before a factor is reported."""
SIGN_LIMIT = 0.01
"""The largest probability of the sign test, two-sided, where a row has at most DENSE flips. Eight
rows out of eight have 1/128. Right fp32 kernels would have to exceed `fp32_factor`, too, which is
more than 5 standard errors of their rows."""
DENSE, DENSE_SIGN_LIMIT = 2.0, 1e-4
"""Mean flips of a row that moved, above which the rows' errors aren't small next to a flip, and the
largest probability there. Kernels that store narrow sums are such: their rows differ by more than
`fp32_factor`, so the sign test stands alone. A factor of that size moves all rows."""
INTERVAL = 2.0
"""Standard errors on each side of the factor: 95 %."""
RSQRT_FACTOR = 2.0**-22
"""The factor that two ways to compute rstd may have between them in every row: a hardware rsqrt of
2 ulp. (1/N rounded to fp32, instead of a division by N, gives 2^-25 of rstd.)"""
RUNNING_FACTOR, FP32_STEP = 1 / 64, 2.0**-23
"""Running fp32 sums of N squares come out small in every row. Squares below half a spacing h of the
sum are lost: with a density f of d near 0, rounding d^2 to h costs 2 zeta(-1/2, 1/2) f h^(3/2) =
.122 f h^(3/2). Over the binades of the sum that is .0158 f std (N 2^-23)^(3/2) of rstd at most, and
.0131 where N is a power of two. f std is .29 for uniform values, .40 for normal, .71 for Laplace
ones. Measured in 122 rows of N = 65536: .0052 for normal values (derived: .0052), .0093 for Laplace
ones (derived: .0093)."""
EXACT_TRIALS = 1000
"""Up to this number of rows the sign test is summed exactly; beyond, the normal law is as good."""
_NAMES = {"zero": "{output}", "beta": "gamma x^ of {output}"}


@dataclass(frozen=True)
class CommonFactor:
    """The flips about one pivot, pooled over seeds.

    Attributes:
        pivot: the value that the factor leaves in place, "zero" or "beta".
        away, toward: elements that moved away from it, and toward it.
        rows_away, rows_toward: rows by the majority of their moves.
        probability: of rows as one-sided as these, if no factor is there.
        factor: d; this build's values are 1 + d times the reference build's. None: nothing to
            measure it by.
        low, high: its interval.
        sensitivity: the moves in ulp that a factor of 2 would make.
        terms: the terms of the sums behind a value.
    """

    pivot: str
    away: int
    toward: int
    rows_away: int
    rows_toward: int
    probability: float
    factor: float | None
    low: float | None
    high: float | None
    sensitivity: float
    terms: int

    @property
    def sign_limit(self) -> float:
        """Return the largest probability of the sign test with which a factor is reported."""
        flips, rows = self.away + self.toward, self.rows_away + self.rows_toward
        return SIGN_LIMIT if flips <= DENSE * rows else DENSE_SIGN_LIMIT

    @property
    def seen(self) -> bool:
        """Return whether the two builds differ by this factor."""
        if self.factor is None or self.low is None or self.high is None:
            return False
        up = self.factor > 0
        flips, rows = (self.away, self.rows_away) if up else (self.toward, self.rows_toward)
        against = self.rows_toward if up else self.rows_away
        nearest = self.low if up else -self.high
        return (
            flips >= MIN_FLIPS
            and rows >= MIN_ROWS
            and rows > against
            and self.probability <= self.sign_limit
            and nearest > fp32_factor(self.terms)
        )

    @property
    def limit(self) -> float | None:
        """Return the smallest factor that would have been seen. None: no factor would have been.

        It makes enough flips, and stays clear of the noise that is there.
        """
        if self.sensitivity <= 0 or self.factor is None or self.high is None:
            return None
        noise = self.high - self.factor
        return max(fp32_factor(self.terms) + noise, _rows_needed() / self.sensitivity)


@dataclass(frozen=True)
class Flips:
    """The flips of one output on equal seeds, pooled."""

    output: str
    seeds: int
    elements: int
    differing: int
    rows: int
    stepped_up: int
    stepped_down: int
    factors: tuple[CommonFactor, ...]
    """One for each pivot."""

    @property
    def best(self) -> CommonFactor:
        """Return the pivot about which the rows agree most."""
        return min(self.factors, key=lambda factor: (not factor.seen, factor.probability))

    @property
    def stepped(self) -> int:
        """Return the rows that moved as a whole."""
        return self.stepped_up + self.stepped_down

    @property
    def seen(self) -> bool:
        """Return whether there is something to report besides that elements differ."""
        return self.best.seen or bool(self.stepped)

    @property
    def words(self) -> str:
        """Return one line that says what the flips show."""
        best, parts = self.best, []
        if self.stepped and not (best.seen and 2 * self.stepped > self.rows):
            parts.append(
                f"{_rows(self.stepped)} rstd moved by a step "
                f"({self.stepped_up} up, {self.stepped_down} down)"
            )
        if best.seen and best.factor is not None:
            one_way, other = sorted((best.away, best.toward), reverse=True)
            parts.append(
                f"a common factor of {_signed(best.factor)} between these builds, in "
                f"{_NAMES[best.pivot].format(output=self.output)} "
                f"({_signed(best.low)} to {_signed(best.high)}): {one_way} of {one_way + other} "
                "flips point one way"
            )
        if not parts:
            limit = best.limit
            parts.append("no common factor" if self.differing else "no element differs")
            if limit is not None:
                parts.append(f"a common factor beyond {_signed(limit)} would show")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types, as the API shows it."""
        best = self.best
        return {
            "output": self.output,
            "seeds": self.seeds,
            "elements": self.elements,
            "differing": self.differing,
            "rows": self.rows,
            "stepped_up": self.stepped_up,
            "stepped_down": self.stepped_down,
            "pivot": best.pivot,
            "away": best.away,
            "toward": best.toward,
            "rows_away": best.rows_away,
            "rows_toward": best.rows_toward,
            "probability": best.probability,
            "factor": best.factor,
            "factor_low": best.low,
            "factor_high": best.high,
            "factor_limit": best.limit,
            "common_factor": best.seen,
            "words": self.words,
        }


def pooled(counts: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[Flips, ...]:
    """Return the flips of each output over several seeds, by name.

    counts: output -> the counts of gonogo.judging.flips.count, one for each seed. Repeats of a seed
    aren't independent: the caller gives one of them.
    """
    return tuple(_pooled(name, entries) for name, entries in sorted(counts.items()) if entries)


def pooled_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[Flips, ...]:
    """Return the same from result rows: the first repeat of each seed that has counts."""
    counts: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        for name, statistics in row["outputs"].items():
            flips = (statistics.get("reference") or {}).get("flips")
            if flips:
                counts.setdefault(name, {}).setdefault(row["seed"], flips)
    return pooled({name: list(seeds.values()) for name, seeds in counts.items()})


def _pooled(output: str, entries: Sequence[Mapping[str, Any]]) -> Flips:
    def total(name: str) -> int:
        return sum(int(entry[name]) for entry in entries)

    return Flips(
        output=output,
        seeds=len(entries),
        **{
            name: total(name)
            for name in ("elements", "differing", "rows", "stepped_up", "stepped_down")
        },
        factors=tuple(
            _factor(pivot, [entry["pivots"][pivot] for entry in entries], entries[0]["terms"])
            for pivot in entries[0]["pivots"]
        ),
    )


def _factor(pivot: str, entries: Sequence[Mapping[str, Any]], terms: int) -> CommonFactor:
    """Pool one pivot: each seed weighs as much as the moves that it could show."""
    counts = {
        name: sum(int(entry[name]) for entry in entries)
        for name in ("away", "toward", "rows_away", "rows_toward")
    }
    measured = [entry for entry in entries if entry["factor_error"] is not None]
    sensitivity = sum(float(entry["sensitivity"]) for entry in measured)
    factor = low = high = None
    if sensitivity > 0:
        factor = sum(entry["factor"] * entry["sensitivity"] for entry in measured) / sensitivity
        error = math.hypot(*(e["factor_error"] * e["sensitivity"] for e in measured)) / sensitivity
        low, high = factor - INTERVAL * error, factor + INTERVAL * error
    return CommonFactor(
        pivot,
        **counts,
        probability=sign_probability(counts["rows_away"], counts["rows_toward"]),
        factor=factor,
        low=low,
        high=high,
        sensitivity=sensitivity,
        terms=terms,
    )


def fp32_factor(terms: int) -> float:
    """Return the common factor that two right fp32 kernels may have between them.

    It is that of rsqrt, and that of running sums of so many terms.
    """
    return RSQRT_FACTOR + RUNNING_FACTOR * math.pow(terms * FP32_STEP, 1.5)


def sign_probability(one: int, other: int) -> float:
    """Return the two-sided probability of a split as uneven as this one, of a fair coin.

    The binomial sum; beyond EXACT_TRIALS the normal law with a correction for whole numbers.
    """
    trials, fewer = one + other, min(one, other)
    if trials > EXACT_TRIALS:
        return math.erfc(max(trials - 2 * fewer - 1, 0) / math.sqrt(2 * trials))
    tail = sum(math.comb(trials, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << trials))


def _rows_needed() -> int:
    """Return the rows, all one way, that the sign test needs: a flip in each is the least."""
    rows = MIN_ROWS
    while sign_probability(rows, 0) > SIGN_LIMIT:
        rows += 1
    return rows


def _rows(number: int) -> str:
    return "1 row's" if number == 1 else f"{number} rows'"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2g}".replace("e-0", "e-").replace("+", "", 1)
