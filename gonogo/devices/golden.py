"""The canary's golden digest: the bits that every healthy device of a host gives.

Each host has its own, per build and architecture: its first explained run defines it and a second
device of the host confirms it. Each host's builds file defines what a build's name means, so two
hosts may rightly differ; two devices of one host may not. And what one host sends must not decide
about the devices of another. A device is suspected only if two things hold: another device of its
host gave the golden digest after this one had begun to give another, and no device of the host
shares the other digest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class DigestChange(StrEnum):
    """The change of a golden digest."""

    learned = "learned"
    """There was none: a first device gave it, and it is not known yet whether it is right."""
    confirmed = "confirmed"
    """A second device gave the same."""
    replaced = "replaced"
    """Every device of the host gives another one, and its numbers are explained: the build has
    changed."""


@dataclass(frozen=True)
class CanaryResult:
    """The latest explained canary of one present device.

    `since` is the first of the unbroken series that gave this digest. Both times are by the clock
    of the device's host.
    """

    device: str
    digest: str
    since: datetime
    at: datetime


@dataclass(frozen=True)
class Golden:
    """The digest that counts as right, and the devices that gave it.

    `second` is None until a second device confirms it.
    """

    digest: str
    first: str
    second: str | None = None


@dataclass(frozen=True)
class Accusation:
    """A device that gives another digest than the golden one, and a witness.

    The witness is a device of the same host that gave the golden digest later.
    """

    device: str
    witness: str

    @property
    def words(self) -> str:
        """The accusation in a phrase."""
        return (
            f"its canary's bits differ from those of {self.witness} on the same host, which still"
            " gives the golden digest"
        )


@dataclass(frozen=True)
class GoldenFinding:
    """The conclusion from the canaries of a host; `golden` is None before the first canary."""

    golden: Golden | None
    change: DigestChange | None = None
    accused: tuple[Accusation, ...] = ()
    excused: frozenset[str] = frozenset()
    """Devices whose digest is no evidence against them: it is the golden one, or another device of
    the host shares it."""


def judge(golden: Golden | None, canaries: Iterable[CanaryResult]) -> GoldenFinding:
    """Return the golden digest after these canaries, and the devices to suspect, by name.

    canaries: one entry per device of one host.
    """
    ordered = sorted(canaries, key=lambda canary: (canary.since, canary.device))
    by_digest: dict[str, list[CanaryResult]] = defaultdict(list)
    for canary in ordered:
        by_digest[canary.digest].append(canary)
    after = _updated(golden, ordered, by_digest)
    if after is None:
        return GoldenFinding(None)
    change = None
    if golden is None:
        change = DigestChange.learned if after.second is None else DigestChange.confirmed
    elif after.digest != golden.digest:
        change = DigestChange.replaced
    elif after.second is not None and golden.second is None:
        change = DigestChange.confirmed
    accused = []
    if after.second is not None:
        for canary in ordered:
            alone = canary.digest != after.digest and len(by_digest[canary.digest]) == 1
            later = [other for other in by_digest.get(after.digest, ()) if other.at > canary.since]
            if alone and later:
                accused.append(Accusation(canary.device, later[0].device))
    excused = frozenset(
        canary.device
        for canary in ordered
        if canary.digest == after.digest or len(by_digest[canary.digest]) > 1
    )
    return GoldenFinding(
        after, change, tuple(sorted(accused, key=lambda accusation: accusation.device)), excused
    )


def _updated(
    golden: Golden | None, ordered: list[CanaryResult], by_digest: dict[str, list[CanaryResult]]
) -> Golden | None:
    """Return the golden digest after these canaries.

    A confirmed digest falls only if all devices, at least two, give another one: one device never
    overrules two.
    """
    if not ordered:
        return golden
    if golden is None:
        golden = Golden(ordered[0].digest, ordered[0].device)
    agreed = len(by_digest) == 1 and ordered[0].digest != golden.digest
    if golden.second is not None:
        return (
            Golden(ordered[0].digest, ordered[0].device, ordered[1].device)
            if agreed and len(ordered) > 1
            else golden
        )
    second = next(
        (canary for canary in by_digest.get(golden.digest, ()) if canary.device != golden.first),
        None,
    )
    if second is not None:
        return Golden(golden.digest, golden.first, second.device)
    pair = next((canaries for canaries in by_digest.values() if len(canaries) > 1), None)
    if pair is not None:
        return Golden(pair[0].digest, pair[0].device, pair[1].device)
    return Golden(ordered[0].digest, ordered[0].device) if agreed else golden
