"""The canary's golden digest: what a build must give, bit for bit, on every healthy device of an
architecture.

The first explained run of a (build, architecture) teaches it and a second device confirms it. What
a build's name means is its host's own affair (the builds file), so two hosts may rightly differ;
two devices of one host may not. A device is therefore suspected only when another device of its
host gave the golden digest after it had begun to give another, and no device anywhere shares the
other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Change(StrEnum):
    """What became of a golden digest."""

    learned = "learned"
    """There was none: a first device gave it, and nobody knows yet whether it is right."""
    confirmed = "confirmed"
    """A second device gave the same."""
    replaced = "replaced"
    """Every device that tells gives another one, and its numbers are explained: the build has
    changed."""


@dataclass(frozen=True)
class CanaryResult:
    """The latest explained canary of one device that is there.

    `since`: the first of the unbroken series that gave this digest; both times are of the clock of
    the device's host.
    """

    device: str
    host: str
    digest: str
    since: datetime
    at: datetime


@dataclass(frozen=True)
class Golden:
    """What is held to be right, and which devices said so; `second` is None until it is
    confirmed.
    """

    digest: str
    first: str
    second: str | None = None


@dataclass(frozen=True)
class Accusation:
    """A device that gives another digest than the golden one, and one of its host that gave the
    golden one later.
    """

    device: str
    witness: str

    @property
    def words(self) -> str:
        """One sentence."""
        return f"its canary's bits differ from those of {self.witness} on the same host, which still gives the golden digest"


@dataclass(frozen=True)
class Finding:
    """What the canaries of all devices say together; `golden` is None as long as nobody sang."""

    golden: Golden | None
    change: Change | None = None
    accused: tuple[Accusation, ...] = ()
    excused: frozenset[str] = frozenset()
    """Devices whose digest can't be held against them: it is the golden one, or another device
    shares it."""


def judge(golden: Golden | None, sung: Iterable[CanaryResult]) -> Finding:
    """Return the golden digest after these canaries (one entry per device), and the devices to suspect, by
    name.
    """
    singers = sorted(sung, key=lambda each: (each.since, each.device))
    choirs: dict[str, list[CanaryResult]] = defaultdict(list)
    for each in singers:
        choirs[each.digest].append(each)
    after = _settle(golden, singers, choirs)
    if after is None:
        return Finding(None)
    change = None
    if golden is None:
        change = Change.learned if after.second is None else Change.confirmed
    elif after.digest != golden.digest:
        change = Change.replaced
    elif after.second is not None and golden.second is None:
        change = Change.confirmed
    accused = []
    if after.second is not None:
        for each in singers:
            alone = each.digest != after.digest and len(choirs[each.digest]) == 1
            later = [
                other
                for other in choirs.get(after.digest, ())
                if other.host == each.host and other.at > each.since
            ]
            if alone and later:
                accused.append(Accusation(each.device, later[0].device))
    excused = frozenset(
        each.device
        for each in singers
        if each.digest == after.digest or len(choirs[each.digest]) > 1
    )
    return Finding(after, change, tuple(sorted(accused, key=lambda each: each.device)), excused)


def _settle(
    golden: Golden | None, singers: list[CanaryResult], choirs: dict[str, list[CanaryResult]]
) -> Golden | None:
    """What is golden now.

    A confirmed digest falls only when all give another, two at least: one device never overrules
    two.
    """
    if not singers:
        return golden
    if golden is None:
        golden = Golden(singers[0].digest, singers[0].device)
    agreed = len(choirs) == 1 and singers[0].digest != golden.digest
    if golden.second is not None:
        return (
            Golden(singers[0].digest, singers[0].device, singers[1].device)
            if agreed and len(singers) > 1
            else golden
        )
    second = next(
        (each for each in choirs.get(golden.digest, ()) if each.device != golden.first), None
    )
    if second is not None:
        return Golden(golden.digest, golden.first, second.device)
    pair = next((choir for choir in choirs.values() if len(choir) > 1), None)
    if pair is not None:
        return Golden(pair[0].digest, pair[0].device, pair[1].device)
    return Golden(singers[0].digest, singers[0].device) if agreed else golden
