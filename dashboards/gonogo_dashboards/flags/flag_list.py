"""Read model of the flags' list: what needs someone, by kind, hollow first; and what became of
those that were just changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.flags.flag_page import FindingLine
from gonogo_dashboards.kit import words
from gonogo_storage.catalogue import test_list
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import FlagKind
from gonogo_storage.flags import triage
from gonogo_storage.flags.flag_changes import Outcome
from gonogo_storage.flags.triage import STATES, Wanted

FILTERS = ("kind", "state", "test", "owner", "build", "job")
SENTENCES: Mapping[str, str] = {
    FlagKind.passes_by_tolerance: "Green only because the tolerance is loose: rounding doesn't explain the error.",
    FlagKind.fix_masked: "It turned green, and the error stayed the same.",
    FlagKind.blunt_test: "Known-wrong kernels pass this test.",
    FlagKind.hangs: "Some seed never ended.",
    FlagKind.flaky: "The same build is sometimes red.",
    FlagKind.nondeterministic: "The same seed on the same device gives other bits.",
    FlagKind.device_dependent: "The same seed gives other bits on another device.",
    FlagKind.context_dependent: "The outcome depends on what ran before in the same process.",
    FlagKind.latent_flake: "Green so far; the tail of its errors reaches the tolerance.",
    FlagKind.tolerance_too_tight: "Red though right: rounding explains the error.",
}
"""What a kind means, in one sentence."""
DEEDS: Mapping[str, str] = {
    "acknowledged": "taken on",
    "owned": "assigned",
    "resolved": "resolved",
    "open": "open again",
}
"""What the buttons do, as it is told afterwards; `owned` sets the owner alone."""
UNDONE = ("acknowledged", "resolved")
"""Deeds that opening again takes back."""


@dataclass(frozen=True)
class KindCount:
    """How many flags of a kind wait for someone."""

    kind: str
    words: str
    verdict: str
    count: int
    url: str
    chosen: bool


@dataclass(frozen=True)
class Refusal:
    """A flag that could not be changed, and why."""

    name: str
    url: str | None
    why: str


@dataclass(frozen=True)
class Told:
    """What became of a change of the page's form."""

    words: str
    refused: tuple[Refusal, ...] = ()
    undo: tuple[str, ...] = ()
    """Flags that can be opened again."""
    problem: str = ""
    """Why nothing was done at all."""


@dataclass(frozen=True)
class Kept:
    """What stands in the form: nothing, or what was sent and refused."""

    flags: tuple[str, ...] = ()
    owner: str = ""
    reason: str = ""
    expires: str = ""


@dataclass(frozen=True)
class FlagsView:
    """A page of the list; `next_url` leads on, or is None. `state` is what is shown: open unless
    the address says otherwise.
    """

    items: tuple[FindingLine, ...]
    counts: tuple[KindCount, ...]
    waiting: int
    state: str
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    change_url: str
    told: Told | None
    at: str | None
    kept: Kept = field(default_factory=Kept)

    @property
    def groups(self) -> list[tuple[str, str, list[FindingLine]]]:
        """(kind, what it means, its flags), as they follow each other."""
        found: list[tuple[str, str, list[FindingLine]]] = []
        for item in self.items:
            if not found or found[-1][0] != item.kind:
                found.append((item.kind, SENTENCES.get(item.kind, ""), []))
            found[-1][2].append(item)
        return found


def known(filters: Mapping[str, str]) -> dict[str, str]:
    """The filters that say something: empty ones, and kinds and states that don't exist, are left
    out.
    """
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    for name, there in (("kind", FlagKind), ("state", STATES)):
        if given.get(name) not in {None, *there}:
            del given[name]
    return given


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime, *, told: Told | None = None,
    kept: Kept | None = None,
) -> FlagsView:  # fmt: skip
    """A page of findings that match the filters. Raises gonogo_storage.db.paging.BadCursor."""
    given = known(filters)
    wanted = Wanted(**given)
    page = triage.listed(session, wanted, limit=limit, cursor=cursor or None)
    tests = test_list.specs(session, {flag["test_key"] for flag in page.items})
    waiting = triage.open_by_kind(session)
    return FlagsView(
        items=tuple(
            flag_page.line(flag, tests.get(flag["test_key"], {}), now) for flag in page.items
        ),
        counts=tuple(_count(kind, number, given) for kind, number in waiting.items()),
        waiting=sum(waiting.values()),
        state=wanted.state,
        filters=given,
        next=page.next,
        next_url=urls.flags(given, cursor=page.next) if page.next else None,
        change_url=urls.CHANGE_FLAGS,
        told=told,
        at=timestamp(now),
        kept=kept or Kept(),
    )


def told(session: Session, deed: str, outcomes: Sequence[Outcome]) -> Told:
    """What became of a change, in words: how many, and each that could not be changed by its
    name.
    """
    changed = [each.id for each in outcomes if each.outcome == "changed"]
    same = sum(each.outcome == "same" for each in outcomes)
    said = f"{words.count(len(changed), 'flag')} {DEEDS[deed]}"
    said += f", {words.count(same, 'was', 'were')} so already" if same else ""
    refused = [each for each in outcomes if each.outcome in ("refused", "missing")]
    tests = test_list.specs(session, _keys(refused))
    return Told(
        said,
        tuple(_refusal(each, tests) for each in refused),
        tuple(changed) if deed in UNDONE else (),
    )


def _keys(outcomes: Collection[Outcome]) -> set[str]:
    return {str(each.flag["test_key"]) for each in outcomes if each.flag is not None}


def _refusal(outcome: Outcome, tests: Mapping[str, Any]) -> Refusal:
    flag = outcome.flag
    if flag is None:
        return Refusal(outcome.id[:50], None, "there is no such flag")
    line = flag_page.line(
        flag, tests.get(flag["test_key"], {}), datetime.fromisoformat(flag["updated_at"])
    )
    return Refusal(
        f"{line.kernel} {line.shape}: {line.kind_words}",
        line.url,
        "" if outcome.problem is None else outcome.problem.reason,
    )


def _count(kind: FlagKind, number: int, given: Mapping[str, str]) -> KindCount:
    chosen = given.get("kind") == kind and given.get("state", "open") == "open"
    url = urls.flags({**given, "state": None, "kind": None if chosen else kind.value})
    return KindCount(
        kind.value, words.FLAGS[kind], words.FLAG_VERDICTS.get(kind, "suspect"), number, url, chosen
    )
