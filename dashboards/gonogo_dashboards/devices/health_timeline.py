"""A device's health in time: spans of good, suspect, bad, maintenance and away, with their reasons
and their places in a picture. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gonogo_dashboards.kit import words
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import DeviceHealth, DeviceState
from gonogo_storage.jobs.device_history import Change

WIDTH, HEIGHT = 1000.0, 36.0
MIN = 2.5
"""A span is drawn at least so wide."""
AWAY = "away"
"""In place of a health: its worker was not heard of."""
BARS: dict[str, tuple[float, float]] = {
    DeviceHealth.good: (20.0, 12.0),
    DeviceHealth.suspect: (10.0, 22.0),
    DeviceHealth.bad: (0.0, 32.0),
    DeviceHealth.maintenance: (26.0, 6.0),
}
"""Top and height by health, so that the states differ in form as well. Away has none: a gap."""
TICKS = 6
SAID = {AWAY: "no heartbeat of its worker"}


@dataclass(frozen=True)
class Span:
    """A time in which the device was in one state; `x` and `width` in a picture that is WIDTH
    wide.
    """

    state: str
    verdict: str
    start: str
    end: str
    seconds: float
    words: str
    """All of it in one line: state, how long, from when, why."""
    reason: str
    actor: str
    drained: bool
    open: bool
    """Whether it goes on."""
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True)
class Timeline:
    """Spans in order; what lies before the first is not known. `ticks` are days under the picture,
    evenly apart.
    """

    spans: tuple[Span, ...]
    since: str
    words: str
    ticks: tuple[str, ...]
    whole: bool
    """Whether every change of the time is in it."""


@dataclass(frozen=True)
class _State:
    """All that the changes so far come to; why and by whom, of its health and of its being away."""

    health: str | None = None
    said: tuple[str, str] = ("", "")
    away: tuple[str, str] | None = None
    drained: bool = False

    @property
    def name(self) -> str | None:
        return None if self.health is None else self.health if self.away is None else AWAY

    @property
    def why(self) -> tuple[str, str]:
        return self.said if self.away is None else self.away

    def after(self, change: Change) -> _State:
        why = (change.reason or "", change.actor)
        if change.what == "health":
            return replace(self, health=change.after, said=why)
        if change.what == "state":
            return replace(
                self,
                away=why if change.after == DeviceState.offline else None,
                health=self.health or DeviceHealth.good.value,
            )
        return replace(self, drained=change.after == "drained")


def timeline(
    changes: Sequence[Change],
    since: datetime,
    now: datetime,
    *,
    silent_since: datetime | None = None,
    whole: bool = True,
) -> Timeline:
    """The spans between two moments from changes in order, of which the first may lie before.
    `silent_since`: nobody heard of it since then, which may not have been noted yet. Changes that
    alter nothing (a health that stays) divide no span.
    """
    told = [*changes]
    if (
        silent_since is not None
        and next((each.after for each in reversed(told) if each.what == "state"), None)
        != DeviceState.offline
    ):
        began = max([silent_since, *(each.at for each in told[-1:])])
        told.append(Change(began, "state", DeviceState.offline.value, "background", SAID[AWAY]))
    found: list[tuple[_State, datetime, datetime]] = []
    shown = state = _State()  # as it was at the beginning of the span, and as it is now
    began = since
    for change in told:
        state, at = state.after(change), min(max(change.at, since), now)
        if (state.name, state.drained) != (shown.name, shown.drained):
            if shown.name is not None and at > began:
                found.append((shown, began, at))
            shown, began = state, at
    if shown.name is not None:
        found.append((shown, began, now))
    scale = WIDTH / max((now - since).total_seconds(), 1.0)
    spans = tuple(_span(*each, since=since, scale=scale, open=each[2] == now) for each in found)
    step = (now - since) / (TICKS - 1)
    ticks = tuple(f"{since + place * step:%d %b}" for place in range(TICKS - 1))
    return Timeline(
        spans,
        str(timestamp(since)),
        _words(spans, (now - since).total_seconds()),
        (*ticks, "now"),
        whole,
    )


def _span(
    state: _State, start: datetime, end: datetime, *, since: datetime, scale: float, open: bool
) -> Span:
    name = str(state.name)
    seconds = (end - start).total_seconds()
    x = (start - since).total_seconds() * scale
    top, height = BARS.get(name, (0.0, 0.0))
    reason, actor = state.why[0] or SAID.get(name, ""), state.why[1]
    until = "now" if open else f"{end:%d %b %H:%M}"
    said = f"{name}{', drained' if state.drained else ''} for {words.duration(seconds)}, from {start:%d %b %H:%M} to {until} UTC"
    return Span(
        state=name,
        verdict="not_run" if name == AWAY else words.HEALTH_VERDICTS.get(name, "suspect"),
        start=str(timestamp(start)),
        end=str(timestamp(end)),
        seconds=seconds,
        words=said + (f": {reason}" if reason else ""),
        reason=reason,
        actor=actor,
        drained=state.drained,
        open=open,
        x=round(min(x, WIDTH - MIN), 1),
        width=round(max(MIN, seconds * scale), 1),
        y=top,
        height=height,
    )


def _words(spans: Sequence[Span], window_s: float) -> str:
    """How much of the time the device was in each state, and the longest time that it was away."""
    if not spans:
        return "Nothing is known of this time."
    shares: dict[str, float] = {}
    for span in spans:
        shares[span.state] = shares.get(span.state, 0.0) + span.seconds
    known = sum(shares.values())
    order = [*DeviceHealth, AWAY]
    parts = [f"{state} {100 * shares[state] / known:.3g}%" for state in order if shares.get(state)]
    said = f"Of the last {words.duration(known if known < 0.98 * window_s else window_s)}: {', '.join(parts)}."
    gaps = [span for span in spans if span.state == AWAY]
    if gaps:
        said += f" Away {words.count(len(gaps), 'time')}, at most {words.duration(max(span.seconds for span in gaps))}."
    return said
