"""A device's health over time: spans of good, suspect, bad, maintenance and offline. Pure.

Each span has its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gonogo_dashboards.kit import words
from gonogo_service.devices.model import DeviceHealthRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import DeviceHealth, DeviceState

OFFLINE = DeviceState.offline.value
"""Instead of a health: its worker sent no heartbeat."""
STATES = (*(health.value for health in DeviceHealth), OFFLINE)
NO_HEARTBEAT = "no heartbeat from its worker"


@dataclass(frozen=True)
class Span:
    """A time in which the device was in one state."""

    state: str
    verdict: str
    start: str
    end: str
    seconds: float
    words: str
    """State, duration, start and reason in one line."""
    reason: str
    actor: str
    drained: bool
    open: bool
    """True for the span that continues now."""


@dataclass(frozen=True)
class Timeline:
    """Spans in order; the time before the first is not known."""

    spans: tuple[Span, ...]
    since: str
    until: str
    words: str
    whole: bool
    """True where it has every change of the period."""
    silence: str = ""
    """For an offline device: when the last heartbeat came, in a sentence."""
    heard_at: str | None = None
    """For an offline device: the last heartbeat; None where it is before the chart."""


@dataclass(frozen=True)
class _State:
    """The state after the changes so far, with the reasons of its health and its absence."""

    health: str | None = None
    why: tuple[str, str] = ("", "")
    away: tuple[str, str] | None = None
    drained: bool = False

    @property
    def name(self) -> str | None:
        return OFFLINE if self.health is not None and self.away is not None else self.health

    @property
    def words(self) -> str:
        """The state; while it was offline, with the health that it had."""
        if self.name != OFFLINE or self.health == DeviceHealth.good:
            return str(self.name)
        in_ = "in " if self.health == DeviceHealth.maintenance else ""
        return f"{OFFLINE} while {in_}{self.health}"

    def after(self, change: DeviceHealthRow) -> _State:
        why = (change.reason or "", change.actor)
        if change.what == "health":
            return replace(self, health=change.after, why=why)
        if change.what == "drain":
            return replace(self, drained=change.after == "drained")
        away = why if change.after == OFFLINE else None
        return replace(self, away=away, health=self.health or DeviceHealth.good.value)


def timeline(
    changes: Sequence[DeviceHealthRow],
    since: datetime,
    now: datetime,
    *,
    silent_since: datetime | None = None,
    whole: bool = True,
) -> Timeline:
    """Return the spans between two moments from changes in order; the first change may lie before.

    `silent_since`: the last heartbeat of an offline device, which may not be stored as a change
    yet. Changes that alter nothing, such as a health that stays, split no span.
    """
    known = [*changes]
    last = next((change.after for change in reversed(known) if change.what == "state"), None)
    if silent_since is not None and last != OFFLINE:
        about = {"actor": "background", "reason": NO_HEARTBEAT}
        known.append(DeviceHealthRow(at=silent_since, what="state", after=OFFLINE, **about))
        known.sort(key=lambda change: change.at)  # a person's change may be younger
    stretches: list[tuple[_State, datetime, datetime]] = []
    shown = state = _State()  # at the beginning of the span, and now
    began = since
    for change in known:
        state, at = state.after(change), min(max(change.at, since), now)
        if (state.name, state.drained) != (shown.name, shown.drained):
            if at > began:
                stretches.append((shown, began, at))
            shown, began = state, at
    stretches.append((shown, began, now))
    spans = tuple(
        _span(state, start, end, is_open=end == now)
        for state, start, end in stretches
        if state.name is not None
    )
    is_shown = silent_since is not None and silent_since >= since
    return Timeline(
        spans,
        timestamp(since),
        timestamp(now),
        _words(spans, (now - since).total_seconds()),
        whole,
        "" if silent_since is None else _silence(silent_since, since, now),
        timestamp(silent_since) if is_shown else None,
    )


def _silence(heard_at: datetime, since: datetime, now: datetime) -> str:
    at = f"{heard_at:%d %b %H:%M} UTC, {words.since(heard_at, now)}"
    if heard_at < since:
        return f"No heartbeat in this time. The last one came on {at}."
    return f"The last heartbeat came on {at}. Nothing is known about the time since then."


def _span(state: _State, start: datetime, end: datetime, *, is_open: bool) -> Span:
    name, seconds = str(state.name), (end - start).total_seconds()
    reason, actor = state.why if state.away is None else state.away
    reason = reason or (NO_HEARTBEAT if name == OFFLINE else "")
    until = "now" if is_open else f"{end:%d %b %H:%M}"
    text = (
        f"{state.words}{', drained' if state.drained else ''} for {words.duration(seconds)},"
        f" from {start:%d %b %H:%M} to {until} UTC"
    )
    return Span(
        state=name,
        verdict="not_run" if name == OFFLINE else words.health_verdict(name),
        start=timestamp(start),
        end=timestamp(end),
        seconds=seconds,
        words=f"{text}: {reason}" if reason else text,
        reason=reason,
        actor=actor,
        drained=state.drained,
        open=is_open,
    )


def _words(spans: Sequence[Span], window_s: float) -> str:
    """Return the share of each state, and the longest time that the device was offline."""
    if not spans:
        return "Nothing is known about this time."
    shares = dict.fromkeys(STATES, 0.0)
    for span in spans:
        shares[span.state] = shares.get(span.state, 0.0) + span.seconds
    known = sum(shares.values())
    parts = [f"{state} {100 * share / known:.3g}%" for state, share in shares.items() if share]
    period = words.duration(known if known < 0.98 * window_s else window_s)
    text = f"Of the last {period}: {', '.join(parts)}."
    gaps = [span.seconds for span in spans if span.state == OFFLINE]
    if gaps:
        most = "" if len(gaps) == 1 else " at most"
        text += f" Offline {words.often(len(gaps))}, for {words.duration(max(gaps))}{most}."
    return text
