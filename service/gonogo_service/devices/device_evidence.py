"""The evidence of a change of a device's health, by who found it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict


@dataclass(frozen=True)
class RecoveryStep:
    """A rung of the recovery ladder, its outcome, and the end of its output."""

    rung: str
    outcome: str
    output: str


@dataclass(frozen=True)
class HealthReport:
    """A host's report on its device, and what else it says."""

    __pydantic_config__ = ConfigDict(extra="allow")

    steps: list[RecoveryStep] | None = None
    executor: str | None = None
    canary: str | None = None
    """The canary's build"""
    digests: dict[str, str] | None = None
    """The canary's outputs"""
    reported: str | None = None
    """The health that the host reported, where the service has another opinion"""


@dataclass(frozen=True)
class CanaryDifference:
    """A canary whose outputs are not the golden ones, though rounding explains them."""

    canary: str
    """The canary's build"""
    arch: str
    digests: dict[str, str]
    golden: str
    """The digest of the golden outputs"""


@dataclass(frozen=True)
class CanaryAccusation:
    """A canary that differs on one device only; the witness is a device that agrees with others."""

    canary: str
    arch: str
    digest: str | None
    golden: str
    witness: str | None


@dataclass(frozen=True)
class FailingTest:
    """A test that fails on the device: [failures, runs] here and elsewhere."""

    workload: str
    build: str
    here: list[int]
    elsewhere: list[int]


@dataclass(frozen=True)
class FailingTests:
    """Unrelated tests that fail on the device and pass on others."""

    failing: int
    tests: int
    examples: list[FailingTest]
    most: float
    """The share of failing tests above which a device is suspect"""
    least_tests: int


DeviceEvidence = CanaryDifference | CanaryAccusation | FailingTests | HealthReport
"""The evidence of a change of a device's health."""
