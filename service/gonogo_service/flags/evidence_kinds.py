"""The evidence of a flag, by the flag's kind, and the details of a change of a flag.

Writers make these shapes and OpenAPI documents them. A flag keeps the object that was stored, so an
older version's evidence stays readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gonogo.flakiness.attribution import Cause, Factor
from gonogo.flakiness.history import Tail
from gonogo.flakiness.masking import BuildChange
from gonogo.flakiness.rates import Rate
from gonogo.flakiness.samples import Configuration
from gonogo.gauge.summary import AdvisedTolerance, MeasuredRate
from gonogo.spec.compared_outputs import CommonFactor
from gonogo.spec.verdicts import Explanation
from gonogo_service.kit.database.states import FlagState


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
class LeftOut:
    """The runs on a sick device, which say nothing about the test."""

    runs: int
    words: str


@dataclass(frozen=True)
class SeedShare:
    """The share of a job's seeds that show a finding."""

    seeds: Rate


@dataclass(frozen=True, kw_only=True)
class VerdictEvidence:
    """The evidence of `passes_by_tolerance` and `tolerance_too_tight`.

    Fields about the seed are null for a selection without arrays. The last six come with the
    assessment, after the job.
    """

    sentence: str
    job: str
    build: str
    seeds: int
    """The seeds that have the verdict"""
    of: int
    tolerance: dict[str, Any]
    diagnosis: str | None
    seed: int | None = None
    repeat: int | None = None
    output: str | None = None
    arithmetic: str | None = None
    judge: str | None = None
    statistics: dict[str, float | None] | None = None
    needed_atol: dict[str, float | None] | None = None
    """By rtol"""
    check: str | None = None
    """The command that runs the seed again; null for imported results"""
    check_leaves_out: list[str] | None = None
    words: str | None = None
    figures: SeedShare | None = None
    extent: ReadExtent | None = None
    examples: list[RunExample] | None = None
    rerun: Rerun | None = None
    left_out: dict[str, LeftOut] | None = None


@dataclass(frozen=True)
class SuspectsOfJob:
    """The suspect seeds of a job, and the seeds that were added for them."""

    seeds: list[int]
    """The first suspect ones"""
    added: list[int]
    rounds: int
    """How often seeds were added"""
    explanation: Explanation | None
    """The answer of all seeds together; null while the added seeds run"""


@dataclass(frozen=True)
class PooledOutput:
    """The judgment of an output over several seeds together."""

    explanation: Explanation
    seeds: int
    reason: str
    """Why the seeds together are worse than each alone; empty if they aren't"""
    factors: list[CommonFactor]
    """Factors that all values of a source share, with the mean of the seeds' estimates"""
    fault: str | None
    """The fault that explains what rounding doesn't"""


@dataclass(frozen=True, kw_only=True)
class SuspectEvidence:
    """The evidence of `passes_by_tolerance` that many seeds show together."""

    sentence: str
    words: str
    job: str
    build: str
    seed: int
    output: str
    seeds: int
    """The number of suspect seeds"""
    of: int
    suspects: SuspectsOfJob
    pooled: dict[str, PooledOutput]
    """By output"""
    tolerance: dict[str, Any]
    judge: str
    diagnosis: str | None
    check: str


@dataclass(frozen=True)
class LostFigures:
    """How often runs hung, or crashed, what the first one said, and how often by each factor."""

    lost: Rate
    message: str | None
    """The first one's; that of a hang has the place, where the watcher saw it."""
    factors: dict[str, tuple[Configuration, ...]]
    """By factor (card, device, build, context, position); `failed` counts the lost runs"""


@dataclass(frozen=True)
class FlakyFigures:
    """The rates of a flaky test, and the causes of its outcomes."""

    failures: Rate
    infrastructure: Rate
    cause: Cause
    causes: list[Cause]
    contexts: list[Configuration]
    devices: list[Configuration]


@dataclass(frozen=True, kw_only=True)
class FactorFigures(Factor):
    """A factor that changes outputs or outcomes; devices are given for `device_dependent`."""

    contexts: tuple[Configuration, ...]
    devices: tuple[Configuration, ...] | None = None


@dataclass(frozen=True)
class LatentFigures:
    """The predicted rate of a test that passed every seed."""

    tail: Tail
    target: float
    """The rate above which a test is a latent flake"""
    era: list[str]
    """Earlier builds whose errors look the same"""


@dataclass(frozen=True)
class MaskedFigures:
    """The change from the build before."""

    change: BuildChange


@dataclass(frozen=True)
class NoFigures:
    """No figures: `before` and `after` say it."""


Figures = LostFigures | FlakyFigures | FactorFigures | LatentFigures | MaskedFigures | NoFigures


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """The evidence of a flag that runs of several jobs show.

    The kinds are `flaky`, `nondeterministic`, `device_dependent`, `context_dependent`,
    `latent_flake`, `fix_masked`, `hangs`, `crashes` and `arithmetic_changed`, which has the last
    four fields.
    """

    sentence: str
    words: str
    job: str
    build: str
    seeds: int
    of: int
    extent: ReadExtent
    tolerance: dict[str, Any]
    seed: int
    repeat: int
    figures: Figures
    examples: list[RunExample]
    rerun: Rerun
    check: str | None
    """The command that shows it again; null for imported results"""
    check_leaves_out: list[str]
    left_out: dict[str, LeftOut]
    """By sick device"""
    policy: str
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
    diagnosis: None = None


FlagEvidence = VerdictEvidence | SuspectEvidence | RunEvidence | GaugeEvidence


@dataclass(frozen=True)
class OpeningDetail:
    """The job that opened or reopened a flag."""

    job: str
    build: str
    check: str | None


@dataclass(frozen=True)
class ChangeDetail:
    """The fields that a person set."""

    state: FlagState | None = None
    owner: str | None = None
    reason: str | None = None
    expires: str | None = None


@dataclass(frozen=True)
class QuietDetail:
    """The quiet jobs that resolved a flag."""

    seeds: int
    builds: list[str]
    jobs: list[str]
    """The newest ones"""
    words: str


@dataclass(frozen=True)
class JobDetail:
    """The removed job that was a flag's only evidence."""

    job: str


@dataclass(frozen=True)
class GaugeDetail:
    """The gauge that resolved a flag."""

    gauge: str


FlagDetail = OpeningDetail | QuietDetail | GaugeDetail | JobDetail | ChangeDetail
