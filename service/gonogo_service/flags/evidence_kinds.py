"""The evidence of a flag, and the details of a change of a flag.

Writers make these shapes and OpenAPI documents them. A flag keeps the object that was stored, so an
older version's evidence stays readable. Fields that say nothing about a kind are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from gonogo.flakiness.attribution import Cause, SeedExample
from gonogo.flakiness.device_times import TimeChange, Times
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.history import Tail
from gonogo.flakiness.masking import BuildChange
from gonogo.flakiness.rates import Rate
from gonogo.flakiness.samples import Configuration
from gonogo.gauge.summary import AdvisedTolerance, MeasuredRate
from gonogo.reports.check_line import left_out_of_line
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.jobs.values import PooledOutput, SuspectsOfJob
from gonogo_service.kit.database.records import Documented


@dataclass(frozen=True)
class ReadExtent:
    """The part of a history that an answer or a finding is based on."""

    jobs: int
    seeds: int
    """(seed, repeat) pairs that were read"""
    of_seeds: int
    """(seed, repeat) pairs of these jobs"""
    more_jobs: bool
    """Whether there are older jobs"""
    words: str

    @classmethod
    def of(cls, jobs: int, seeds: int, of_seeds: int, *, more_jobs: bool) -> ReadExtent:
        """Return the extent with its words."""
        older = ", older jobs not read" if more_jobs else ""
        counted = f"{jobs} job{'' if jobs == 1 else 's'}"
        words = f"{seeds} of {of_seeds} seeds of {counted}{older}"
        return cls(jobs, seeds, of_seeds, more_jobs, words)


@dataclass(frozen=True)
class RunExample:
    """A run that shows a finding."""

    job: str
    build: str
    seed: int
    repeat: int
    device: str | None
    context: str
    host_run: str | None
    position: int | None
    verdict: str
    explanation: str | None
    tolerance_ratio: float | None
    digests: dict[str, str]


@dataclass(frozen=True)
class Rerun:
    """The seeds, builds and devices with which a finding is run again."""

    seeds: list[int]
    repeats: int
    devices: list[str]
    builds: list[str]
    contexts: list[str]
    jobs: list[str]


@dataclass(frozen=True)
class SickRuns:
    """The runs on a sick device, which say nothing about the test."""

    runs: int
    words: str


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The numbers of a finding; those that say nothing about its kind are left out."""

    seeds: Rate | None = None
    """The share of a job's seeds that show it"""
    lost: Rate | None = None
    """The share of runs that hung, or crashed"""
    message: str | None = None
    """The first of these; that of a hang has the place, where the watcher saw it"""
    factors: dict[str, tuple[Configuration, ...]] | None = None
    """By factor (card, device, build, context, position); `failed` counts the lost runs"""
    failures: Rate | None = None
    infrastructure: Rate | None = None
    cause: Cause | None = None
    causes: tuple[Cause, ...] | None = None
    contexts: tuple[Configuration, ...] | None = None
    devices: tuple[Configuration, ...] | None = None
    holds: bool | None = None
    """Whether a factor changes outputs or outcomes"""
    compared: Rate | None = None
    """The share of the compared seeds that differ"""
    examples: tuple[SeedExample, ...] | None = None
    rows: tuple[Configuration, ...] | None = None
    """Configurations whose failure rate differs by itself (exact test)"""
    words: str | None = None
    tail: Tail | None = None
    target: float | None = None
    """The predicted rate above which a test that passed every seed is a latent flake"""
    era: list[str] | None = None
    """Earlier builds whose errors look the same"""
    change: BuildChange | None = None
    """The change from the build before"""
    time: TimeChange | None = None
    """The seconds a seed on the device over those of the earlier build"""
    before: tuple[Times, ...] | None = None
    """The seconds of the earlier build, by job and device"""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The part of a flag's evidence that comes with an assessment: the runs, and the next ones."""

    figures: Annotated[dict[str, Any], Documented(Figures)] | None = None
    extent: ReadExtent | None = None
    examples: list[RunExample] | None = None
    rerun: Rerun | None = None
    left_out: dict[str, SickRuns] | None = None
    """By sick device"""


@dataclass(frozen=True, kw_only=True)
class Evidence(Runs):
    """The evidence of a flag of results.

    Seeds of one job show `passes_by_tolerance` and `tolerance_too_tight`; runs of several jobs show
    the other kinds.
    """

    sentence: str
    words: str | None = None
    """The same with the numbers"""
    job: str
    build: str
    seeds: int
    """The seeds that show it"""
    of: int
    tolerance: dict[str, Any]
    seed: int | None = None
    repeat: int | None = None
    output: str | None = None
    diagnosis: str | None = None
    arithmetic: str | None = None
    judge: str | None = None
    statistics: dict[str, float | None] | None = None
    needed_atol: dict[str, float | None] | None = None
    """By rtol"""
    suspects: SuspectsOfJob | None = None
    """Where many seeds show it together"""
    pooled: dict[str, PooledOutput] | None = None
    """The same, by output"""
    check: str | None = None
    """The command that shows it again; none for imported results"""
    check_leaves_out: list[str] | None = None
    policy: str | None = None
    before: dict[str, str | None] | None = None
    """By output: the arithmetic on earlier builds"""
    after: dict[str, str | None] | None = None
    found_in: dict[str, str] | None = None
    earlier_builds: dict[str, list[str]] | None = None


@dataclass(frozen=True)
class MutantMiss(MeasuredRate):
    """How often a known-wrong kernel passed."""

    sentence: str | None


@dataclass(frozen=True, kw_only=True)
class GaugeEvidence:
    """The evidence of `blunt_test`: known-wrong kernels that pass, and what would reject them."""

    sentence: str
    gauge: str
    misses: dict[str, MutantMiss]
    on_every_seed: list[str]
    known_wrong: int
    """The known-wrong kernels that can show"""
    seeds: list[int]
    devices: list[str]
    tolerance: dict[str, Any]
    advice: AdvisedTolerance
    beyond: str
    command: str
    command_leaves_out: list[str]
    check: str


FlagEvidence = Evidence | GaugeEvidence


@dataclass(frozen=True, kw_only=True)
class FlagDetail:
    """The job, the fields that a person set, or the quiet jobs that a change of a flag is about."""

    job: str | None = None
    build: str | None = None
    check: str | None = None
    state: FlagState | None = None
    owner: str | None = None
    reason: str | None = None
    expires: str | None = None
    seeds: int | None = None
    """The quiet seeds that resolved it"""
    builds: list[str] | None = None
    jobs: list[str] | None = None
    """The newest quiet ones"""
    words: str | None = None
    gauge: str | None = None
    """The gauge that resolved it"""


def raised(kind: FlagKind, job: Any, test: Mapping[str, Any], **facts: Any) -> FlagRow:
    """Return a flag that a job's results show; `facts` are the special fields of its Evidence."""
    usual = {
        "sentence": kind.sentence,
        "job": job.id,
        "build": job.build,
        "tolerance": dict(test.get("tolerance") or {}),
        "check_leaves_out": left_out_of_line(test),
    }
    return FlagRow.finding(kind, job, stored(Evidence(**{**usual, **facts})))


def stored(shape: Runs | GaugeEvidence | FlagDetail | Figures) -> dict[str, Any]:
    """Return an object as a row stores it, without what says nothing."""
    return {name: value for name, value in asdict(shape).items() if value is not None}
