"""Read the flips of two builds: a common factor, or rows whose rstd moved by a step.

It reads the stored counts of gonogo.judging.flips, without NumPy, since the API does it for a page.

Three things must hold before a factor is reported. The flips point one way in enough rows (a sign
test: right builds that differ in the order of their sums move each row by its own error, up or
down). The factor's interval stays clear of what two right fp32 kernels may differ by in every row
on these inputs (shared_factors.py). And the moves are none that stored 16-bit values, or another
rounding of the result, make.
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
rows out of eight have 1/128. Right fp32 kernels would have to exceed their shared factor, too,
which is more than 5 standard errors of their rows."""
DENSE, DENSE_SIGN_LIMIT = 2.0, 1e-4
"""Mean flips of a row that moved, above which the rows' errors aren't small next to a flip, and the
largest probability there. Kernels that store narrow sums are such: their rows differ by more than
the shared factor, so the sign test stands alone. A factor of that size moves all rows."""
INTERVAL = 2.0
"""Standard errors on each side of the factor: 95 %."""
ONE_WAY = 0.9
"""The share of the flips that point one way at least. Rounding is monotone: a factor moves no
element the other way, however often its value is rounded afterward. Flips both ways come from
values that one of the builds stores in 16 bits. Right rows may share those: their rounding errors
are equal where their values are."""
STORED_MOVE = 1.5
"""The mean move of an element, in ulp, up to which a stored rstd may have moved rows. Half an ulp
of rstd in each of two builds is a step of it, which moves an element by 1/2 to 2 ulp, 1.4 on
average."""
UNIFORM_SCATTER = 0.25
"""The standard deviation of the rows' factors, relative to the common one, up to which they are one
factor. Roundings of rstd scatter by as much as they are."""
TRUNCATED_MOVE = (0.25, 0.75)
"""The mean moves that may be another rounding of the result: truncation moves every element toward
zero, by half an ulp on average. Large mantissas move as far as small ones then, while a factor
moves them further: its slope is above 0 by SLOPE_ERRORS."""
SLOPE_ERRORS = 3.0
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
        shared: the factor that two right kernels may have on these inputs.
        elements: the elements that a factor could move.
        slope, slope_error: the factor by the growth of the moves with the mantissas.
        stepped: the share of the rows that moved as a whole, as a step of a stored rstd moves them.
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
    shared: float
    elements: int
    slope: float
    slope_error: float
    stepped: float

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
            and nearest > self.shared
            and self.is_one_way
            and not self.may_be_rounding
        )

    @property
    def may_be_rounding(self) -> bool:
        """Return whether a stored rstd, or another rounding of the result, may move so far."""
        return self.is_half_step or (self.by_steps and self.mean_move <= STORED_MOVE)

    @property
    def by_steps(self) -> bool:
        """Return whether rows moved as a whole, each as its own stored rstd says.

        Where one did, the others may have moved by less than a step. Rows of a factor all move
        alike: most of them as a whole, or none.
        """
        if self.factor is None or self.high is None:
            return self.stepped > 0
        rows = max(self.rows_away + self.rows_toward, 1)
        scatter = (self.high - self.factor) / INTERVAL * rows**0.5
        return 0 < self.stepped <= 0.5 or (
            self.stepped > 0 and scatter > UNIFORM_SCATTER * abs(self.factor)
        )

    @property
    def moves_away(self) -> bool:
        """Return whether most flips point away from the pivot."""
        return self.away > self.toward

    @property
    def mean_move(self) -> float:
        """Return the mean size of the moves that the factor makes, in ulp of an element."""
        return abs(self.factor or 0.0) * self.sensitivity / max(self.elements, 1)

    @property
    def is_one_way(self) -> bool:
        """Return whether nearly all flips point one way."""
        return max(self.away, self.toward) >= ONE_WAY * (self.away + self.toward)

    @property
    def is_half_step(self) -> bool:
        """Return whether all elements moved as another rounding of the result would move them."""
        low, high = TRUNCATED_MOVE
        slope = self.slope if self.moves_away else -self.slope
        return (
            self.is_one_way
            and low <= self.mean_move <= high
            and slope <= SLOPE_ERRORS * self.slope_error
        )

    @property
    def limit(self) -> float | None:
        """Return the smallest factor that would have been seen. None: no factor would have been.

        It makes enough flips, and stays clear of the noise that is there.
        """
        if self.sensitivity <= 0 or self.factor is None or self.high is None:
            return None
        noise = self.high - self.factor
        stored = STORED_MOVE * self.elements if self.by_steps else 0.0
        return max(self.shared + noise, max(_rows_needed(), stored) / self.sensitivity)


@dataclass(frozen=True)
class FlipsSummary:
    """Outputs that differ between a build and its reference build, pooled over seeds."""

    output: str
    seeds: int
    elements: int
    """Elements that are finite in both builds"""
    differing: int
    """Elements that differ"""
    rows: int
    """Rows; each value of mean, rstd, dgamma and dbeta is one"""
    stepped_up: int
    """Rows that moved as a whole by a step of rstd, outward"""
    stepped_down: int
    """Such rows that moved inward"""
    pivot: str
    """The value that the factor leaves in place: zero or beta"""
    away: int
    """Elements farther from the pivot than the reference build's"""
    toward: int
    """Elements nearer to the pivot"""
    rows_away: int
    """Rows most of whose moves point away from the pivot"""
    rows_toward: int
    probability: float
    """Sign test over rows, two-sided"""
    factor: float | None
    """d, if this build's values are 1 + d times"""
    factor_low: float | None
    factor_high: float | None
    factor_limit: float | None
    """The least factor that would have been seen"""
    common_factor: bool
    """Whether the two builds differ by that factor"""
    rounded_otherwise: bool
    """Whether all elements moved half a step one way, as by truncation"""
    words: str


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
        return self.best.seen or bool(self.stepped) or self.is_rounded_otherwise

    @property
    def is_rounded_otherwise(self) -> bool:
        """Return whether all elements moved half a step one way, as by truncation."""
        return self.factors[0].is_half_step and not self.factors[0].by_steps

    @property
    def words(self) -> str:
        """Return one line that says what the flips show."""
        best, parts = self.best, []
        if self.is_rounded_otherwise and not best.seen:
            direction = "away from" if self.factors[0].moves_away else "toward"
            parts.append(
                f"{self.output} moved {direction} zero by {self.factors[0].mean_move:.2g} steps on "
                f"average, large mantissas no further than small ones: one build truncates"
            )
        elif self.stepped and not (best.seen and 2 * self.stepped > self.rows):
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

    @property
    def summary(self) -> FlipsSummary:
        """Return what people read, about the pivot on which the rows agree most."""
        best = self.best
        return FlipsSummary(
            output=self.output,
            seeds=self.seeds,
            elements=self.elements,
            differing=self.differing,
            rows=self.rows,
            stepped_up=self.stepped_up,
            stepped_down=self.stepped_down,
            pivot=best.pivot,
            away=best.away,
            toward=best.toward,
            rows_away=best.rows_away,
            rows_toward=best.rows_toward,
            probability=best.probability,
            factor=best.factor,
            factor_low=best.low,
            factor_high=best.high,
            factor_limit=best.limit,
            common_factor=best.seen,
            rounded_otherwise=self.is_rounded_otherwise,
            words=self.words,
        )


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
            _factor(
                pivot,
                [entry["pivots"][pivot] for entry in entries],
                shared=max(entry["shared_factor"] for entry in entries),
                stepped=(total("stepped_up") + total("stepped_down")) / max(total("rows"), 1),
            )
            for pivot in entries[0]["pivots"]
        ),
    )


def _factor(
    pivot: str, entries: Sequence[Mapping[str, Any]], *, shared: float, stepped: float
) -> CommonFactor:
    """Pool one pivot: each seed weighs as much as the moves that it could show."""
    counts = {
        name: sum(int(entry[name]) for entry in entries)
        for name in ("away", "toward", "rows_away", "rows_toward", "elements")
    }
    measured = [entry for entry in entries if entry["factor_error"] is not None]
    sensitivity = sum(float(entry["sensitivity"]) for entry in measured)
    factor = low = high = None
    if sensitivity > 0:
        factor = sum(entry["factor"] * entry["sensitivity"] for entry in measured) / sensitivity
        error = math.hypot(*(e["factor_error"] * e["sensitivity"] for e in measured)) / sensitivity
        low, high = factor - INTERVAL * error, factor + INTERVAL * error
    sloped = [entry for entry in entries if entry["slope"] is not None]
    return CommonFactor(
        pivot,
        **counts,
        probability=sign_probability(counts["rows_away"], counts["rows_toward"]),
        factor=factor,
        low=low,
        high=high,
        sensitivity=sensitivity,
        shared=shared,
        slope=sum(entry["slope"] for entry in sloped) / max(len(sloped), 1),
        slope_error=math.hypot(*(entry["slope_error"] for entry in sloped)) / max(len(sloped), 1),
        stepped=stepped,
    )


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
