"""The answers about a test's flakiness in the words of gonogo.flakiness: rates, grades, causes,
change points, builds against builds.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from gonogo.flakiness.attribution import Cause
from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.flakiness.masking import Change as Became


class RateOut(BaseModel):
    """`failures` of `runs`, and its interval at `level`; nulls without a run."""

    failures: int
    runs: int
    mean: float | None
    low: float | None
    high: float | None
    level: float


class VariantOut(BaseModel):
    """Where a test runs: a branch on one kind of board."""

    branch: str
    arch: str
    board: str


class Looked(BaseModel):
    """How much of the history the answer is made from."""

    jobs: int
    seeds: int = Field(description="(seed, repeat) that were read")
    of_seeds: int = Field(description="(seed, repeat) that these jobs have")
    more_jobs: bool = Field(description="whether there are older jobs")
    words: str


class Source(BaseModel):
    """Where a judgement comes from."""

    source: Literal["stored", "computed"] = Field(
        description="by the background's assessment, or for this answer"
    )
    at: str | None = Field(description="when it was assessed; null when computed for this answer")


class Threshold(BaseModel):
    """One fit of a tail."""

    threshold: float
    exceedances: int
    predicted: float


class TailOut(BaseModel):
    """The failure rate that the tail of the errors foretells, per seed or per run of a seed, and
    its one-sided upper bound.
    """

    seeds: int = Field(description="samples, in `per`")
    left_out: int
    observed: RateOut
    predicted: float | None
    upper: float | None
    at_most: bool = Field(
        description="whether `predicted` is the least that so many seeds may foretell"
    )
    level: float
    thresholds: list[Threshold]
    largest: float | None
    words: str
    distinct: int | None = Field(
        default=None,
        description="distinct seeds among the samples; null of assessments before it was counted",
    )
    per: str = Field(
        default="seeds",
        description="`seeds`, or `runs` where a seed's runs give other numbers each time",
    )
    repeated: int = Field(
        default=0,
        description="runs that are no samples, since they give again what their seed gave",
    )


class GradeOut(BaseModel):
    """Two axes: is the test stable, and do known-wrong kernels fail it?"""

    stability: Stability
    sharpness: Sharpness
    hollow: bool = Field(description="green and unexplained on this build")
    latent: bool = Field(description="green, and foretold to fail")
    failures: RateOut
    tail: TailOut | None
    missed: dict[str, RateOut] = Field(
        description="of each known-wrong kernel that can show: how often it passed"
    )
    words: str
    policy: str


class Configuration(BaseModel):
    """A row of the table of a factor, compared with the first row where that is `isolated`, else
    with all others together.
    """

    name: str
    runs: int
    passed: int
    failed: int
    host_runs: int = Field(description="child processes that the runs came from")
    pass_rate: float | None
    pass_low: float | None
    pass_high: float | None
    p: float | None = Field(
        description="Fisher's exact test, two-sided; null for the row that the others are compared with"
    )
    higher: float | None = Field(
        description="posterior probability that it fails more often than what it is compared with"
    )
    repeated: int = Field(
        default=0, description="further runs that repeat one of the row bit for bit: in no rate"
    )


class FactorOut(BaseModel):
    """One factor: how many seeds were compared, how many differ, examples, and the rows whose rates
    differ by themselves.
    """

    cause: Cause
    holds: bool
    compared: RateOut
    examples: list[dict[str, Any]]
    rows: list[Configuration]
    words: str


class SampleOut(BaseModel):
    """One run that the attribution looked at."""

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
    """A change at the point `at`, which lies between the two of `between` at `level`."""

    place: int
    low: int
    high: int
    at: str
    between: tuple[str, str]
    level: float
    before: float = Field(description="mean of the logarithm of the number, or the failure rate")
    after: float
    p: float | None
    odds: float | None = Field(description="Bayes factor against no change, of rates")
    rates: list[RateOut] | None
    words: str


class ChangesOut(BaseModel):
    """The change points of one series."""

    changes: list[ChangeOut]
    points: int
    left_out: int
    moved: int = Field(description="points that stood before an earlier one")
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
    """What became of the kernel between two builds."""

    before: str
    after: str
    change: Became
    turned_green: bool
    red: list[RateOut]
    unexplained: list[RateOut]
    same: list[str] = Field(description="wrong terms, or statistics, that stayed as they were")
    differing: list[str]
    by: str = Field(
        description="what was compared: digests, coefficients, statistics, explanations, or nothing"
    )
    words: str
    policy: str
