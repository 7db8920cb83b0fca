"""Schemas of a test's flakiness, with the terms of gonogo.flakiness.

They cover rates, grades, causes, change points, and comparisons of builds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from gonogo.flakiness.attribution import Cause
from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.flakiness.masking import Change as Became


class RateOut(BaseModel):
    """The rate of `failures` in `runs`, with its interval at `level`; nulls without a run."""

    failures: int
    runs: int
    mean: float | None
    low: float | None
    high: float | None
    level: float


class VariantOut(BaseModel):
    """A variant of a test: a branch on one kind of board."""

    branch: str
    arch: str
    board: str


class Extent(BaseModel):
    """The part of the history that the answer is based on."""

    jobs: int
    seeds: int = Field(description="(seed, repeat) pairs that were read")
    of_seeds: int = Field(description="(seed, repeat) pairs of these jobs")
    more_jobs: bool = Field(description="Whether there are older jobs")
    words: str


class Source(BaseModel):
    """The source of an assessment."""

    source: Literal["stored", "computed"] = Field(
        description="Stored by the background process, or computed for this answer"
    )
    at: str | None = Field(description="Time of the assessment; null if computed for this answer")


class Threshold(BaseModel):
    """One fit of a tail."""

    threshold: float
    exceedances: int
    predicted: float


class TailOut(BaseModel):
    """The failure rate that the tail of the errors predicts, and its one-sided upper bound.

    It is a rate per seed, or per run of a seed.
    """

    seeds: int = Field(description="Number of samples, in the unit `per`")
    left_out: int
    observed: RateOut
    predicted: float | None
    upper: float | None
    at_most: bool = Field(
        description="Whether `predicted` is the lowest rate that so many seeds can predict"
    )
    level: float
    thresholds: list[Threshold]
    largest: float | None
    words: str
    distinct: int | None = Field(
        default=None,
        description="Distinct seeds among the samples; null in old assessments",
    )
    per: str = Field(
        default="seeds",
        description="`seeds`, or `runs` if each run of a seed gives different numbers",
    )
    repeated: int = Field(
        default=0,
        description="Runs that are not samples, because they repeat their seed's numbers",
    )


class GradeOut(BaseModel):
    """The grade on two axes: is the test stable, and do known-wrong kernels fail it?"""

    stability: Stability
    sharpness: Sharpness
    hollow: bool = Field(description="Passes, but unexplained, on this build")
    latent: bool = Field(description="Passes, but predicted to fail")
    failures: RateOut
    tail: TailOut | None
    missed: dict[str, RateOut] = Field(
        description="Pass rate of each known-wrong kernel that can be detected"
    )
    words: str
    policy: str


class Configuration(BaseModel):
    """A row of a factor's table.

    It is compared with the first row if that is `isolated`, else with all other rows together.
    """

    name: str
    runs: int
    passed: int
    failed: int
    host_runs: int = Field(description="Child processes of the runs")
    pass_rate: float | None
    pass_low: float | None
    pass_high: float | None
    p: float | None = Field(
        description="Fisher's exact test, two-sided; null for the reference row"
    )
    higher: float | None = Field(
        description="Posterior probability that it fails more often than the reference"
    )
    repeated: int = Field(
        default=0, description="Runs that repeat another run bit for bit; they count in no rate"
    )


class FactorOut(BaseModel):
    """One factor: the compared and differing seeds, examples, and the rows with different rates."""

    cause: Cause
    holds: bool
    compared: RateOut
    examples: list[dict[str, Any]]
    rows: list[Configuration]
    words: str


class SampleOut(BaseModel):
    """One run of the attribution."""

    seed: int | None
    repeat: int
    device: str
    build: str
    context: str
    host_run: str
    position: int
    digest: str | None
    outcome: str


class ChangeOut(BaseModel):
    """A change at the point `at`, which is within `between` at `level`."""

    place: int
    low: int
    high: int
    at: str
    between: tuple[str, str]
    level: float
    before: float = Field(description="Mean logarithm of the number, or the failure rate")
    after: float
    p: float | None
    odds: float | None = Field(description="Bayes factor against no change, for rates")
    rates: list[RateOut] | None
    words: str


class ChangesOut(BaseModel):
    """The change points of one series."""

    changes: list[ChangeOut]
    points: int
    left_out: int
    moved: int = Field(description="Points that came before an earlier one")
    words: str


class Spread(BaseModel):
    """The seeds of a point."""

    seeds: int
    low: float
    mean: float
    high: float


class PointOut(BaseModel):
    """A build, or a day."""

    name: str
    failures: RateOut
    jobs: int
    numbers: dict[str, Spread]


class BuildChangeOut(BaseModel):
    """The change of the kernel between two builds."""

    before: str
    after: str
    change: Became
    turned_green: bool
    red: list[RateOut]
    unexplained: list[RateOut]
    same: list[str] = Field(description="Wrong terms, or statistics, that did not change")
    differing: list[str]
    by: str = Field(
        description="Compared data: digests, coefficients, statistics, explanations, or nothing"
    )
    words: str
    policy: str
