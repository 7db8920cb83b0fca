"""A device's health over time: spans of good, suspect, bad, maintenance and offline. Pure.

Each span has its reason and its place in a chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gonogo_dashboards.kit import words
from gonogo_service.devices.history import Change
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import DeviceHealth, DeviceState

WIDTH, HEIGHT = 1000.0, 36.0
MIN_WIDTH = 2.5
"""The smallest width of a span."""
OFFLINE = DeviceState.offline.value
"""Instead of a health: its worker sent no heartbeat."""
BARS: dict[str, tuple[float, float]] = {
    DeviceHealth.good: (20.0, 12.0),
    DeviceHealth.suspect: (10.0, 22.0),
    DeviceHealth.bad: (0.0, 32.0),
    DeviceHealth.maintenance: (26.0, 6.0),
    OFFLINE: (14.0, 18.0),
}
"""Top and height by state, so that the states also differ in form; offline is hatched, too."""
TICKS = 6
DEFAULT_REASONS = {OFFLINE: "no heartbeat from its worker"}


@dataclass(frozen=True)
class Span:
    """A time in which the device was in one state.

    `x` and `width` are in a chart that is WIDTH wide.
    """

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
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True)
class Timeline:
    """Spans in order; the time before the first is not known.

    `ticks` are evenly spaced days below the chart.
    """

    spans: tuple[Span, ...]
    since: str
    words: str
    ticks: tuple[str, ...]
    whole: bool
    """True where it has every change of the period."""
    ends: tuple[float, float] = (0.0, 1.0)
    """Its first and last moment in milliseconds."""
    silence: str = ""
    """For an offline device: when the last heartbeat came, in a sentence."""
    heard_x: float | None = None
    """For an offline device: the place of the last heartbeat; None where it is before the chart."""

    def place(self, moment_ms: float) -> float:
        """Return the place of a moment in the chart."""
        first, last = self.ends
        return round(WIDTH * min(1.0, max(0.0, (moment_ms - first) / (last - first))), 1)


@dataclass(frozen=True)
class _State:
    """The state after the changes so far, with the reasons of its health and its absence."""

    health: str | None = None
    health_why: tuple[str, str] = ("", "")
    away: tuple[str, str] | None = None
    drained: bool = False

    @property
    def name(self) -> str | None:
        return None if self.health is None else self.health if self.away is None else OFFLINE

    @property
    def words(self) -> str:
        """The state; while it was offline, with the health that it had."""
        name = str(self.name)
        bad = self.health not in (None, DeviceHealth.good.value)
        health = f"in {self.health}" if self.health == DeviceHealth.maintenance else self.health
        return f"{name} while {health}" if name == OFFLINE and bad else name

    @property
    def why(self) -> tuple[str, str]:
        return self.health_why if self.away is None else self.away

    def after(self, change: Change) -> _State:
        why = (change.reason or "", change.actor)
        if change.what == "health":
            return replace(self, health=change.after, health_why=why)
        if change.what == "state":
            return replace(
                self,
                away=why if change.after == DeviceState.offline else None,
                health=self.health or DeviceHealth.good.value,
            )
        return replace(self, drained=change.after == "drained") if change.what == "drain" else self


def timeline(
    changes: Sequence[Change],
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
    if (
        silent_since is not None
        and next((change.after for change in reversed(known) if change.what == "state"), None)
        != DeviceState.offline
    ):
        reason = DEFAULT_REASONS[OFFLINE]
        known.append(Change(silent_since, "state", OFFLINE, "background", reason))
        known.sort(key=lambda change: change.at)  # a person's change may be younger
    stretches: list[tuple[_State, datetime, datetime]] = []
    shown = state = _State()  # at the beginning of the span, and now
    began = since
    for change in known:
        state, at = state.after(change), min(max(change.at, since), now)
        if (state.name, state.drained) != (shown.name, shown.drained):
            if shown.name is not None and at > began:
                stretches.append((shown, began, at))
            shown, began = state, at
    if shown.name is not None:
        stretches.append((shown, began, now))
    scale = WIDTH / max((now - since).total_seconds(), 1.0)
    spans = tuple(
        _span(*stretch, since=since, scale=scale, open=stretch[2] == now) for stretch in stretches
    )
    step = (now - since) / (TICKS - 1)
    tick = "%d %b" if step >= timedelta(days=1) else "%d %b %H:%M"  # no day stands there twice
    ticks = tuple(f"{since + place * step:{tick}}" for place in range(TICKS - 1))
    return Timeline(
        spans,
        str(timestamp(since)),
        _words(spans, (now - since).total_seconds()),
        (*ticks, "now"),
        whole,
        (since.timestamp() * 1000, now.timestamp() * 1000 + 1),
        "" if silent_since is None else _silence(silent_since, since, now),
        None
        if silent_since is None or silent_since < since
        else round((silent_since - since).total_seconds() * scale, 1),
    )


def _silence(heard_at: datetime, since: datetime, now: datetime) -> str:
    at = f"{heard_at:%d %b %H:%M} UTC, {words.since(heard_at, now)}"
    if heard_at < since:
        return f"No heartbeat in this time. The last one came on {at}."
    return f"The last heartbeat came on {at}. Nothing is known about the time since then."


def _span(
    state: _State, start: datetime, end: datetime, *, since: datetime, scale: float, open: bool
) -> Span:
    name = str(state.name)
    seconds = (end - start).total_seconds()
    x = (start - since).total_seconds() * scale
    top, height = BARS.get(name, (0.0, 0.0))
    reason, actor = state.why[0] or DEFAULT_REASONS.get(name, ""), state.why[1]
    until = "now" if open else f"{end:%d %b %H:%M}"
    text = f"{state.words}{', drained' if state.drained else ''} for {words.duration(seconds)}"
    text += f", from {start:%d %b %H:%M} to {until} UTC"
    return Span(
        state=name,
        verdict="not_run" if name == OFFLINE else words.HEALTH_VERDICTS.get(name, "suspect"),
        start=str(timestamp(start)),
        end=str(timestamp(end)),
        seconds=seconds,
        words=text + (f": {reason}" if reason else ""),
        reason=reason,
        actor=actor,
        drained=state.drained,
        open=open,
        x=round(min(x, WIDTH - MIN_WIDTH), 1),
        width=round(max(MIN_WIDTH, seconds * scale), 1),
        y=top,
        height=height,
    )


def _words(spans: Sequence[Span], window_s: float) -> str:
    """Return the share of each state, and the longest time that the device was offline."""
    if not spans:
        return "Nothing is known about this time."
    shares: dict[str, float] = {}
    for span in spans:
        shares[span.state] = shares.get(span.state, 0.0) + span.seconds
    known = sum(shares.values())
    order = [*DeviceHealth, OFFLINE]
    parts = [f"{state} {100 * shares[state] / known:.3g}%" for state in order if shares.get(state)]
    period = words.duration(known if known < 0.98 * window_s else window_s)
    text = f"Of the last {period}: {', '.join(parts)}."
    gaps = [span for span in spans if span.state == OFFLINE]
    if gaps:
        longest = words.duration(max(span.seconds for span in gaps))
        text += f" Offline {'once' if len(gaps) == 1 else f'{len(gaps):,} times'}, for {longest}"
        text += "." if len(gaps) == 1 else " at most."
    return text
