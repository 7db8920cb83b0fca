"""The fleet as a strip of cells, and which of its devices are in trouble. Pure: from the lines of
the list of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gonogo_dashboards.devices.device_page import DeviceLine
from gonogo_dashboards.kit import words
from gonogo_storage.db.states import DeviceHealth, DeviceState

GONE = timedelta(days=7)
"""A device that was silent for longer is taken for put away: nobody is asked to look after it."""
ROOMY = 36
"""Up to so many devices each cell has room for its name and what it runs."""
LETTERS = {DeviceState.busy: "B", DeviceState.idle: "I", DeviceState.offline: "–"}


@dataclass(frozen=True)
class Cell:
    """A device: the letter of its state, the verdict whose shape and colour its health takes, and
    all of it in one sentence.
    """

    id: str
    url: str
    device: str
    label: str
    """Its name; with its host, where there are several."""
    state: str
    letter: str
    health: str
    verdict: str
    drained: bool
    sentence: str
    job_url: str | None
    job_words: str


@dataclass(frozen=True)
class Trouble:
    """A device that someone should look at, and why."""

    device: str
    url: str
    verdict: str
    words: str


@dataclass(frozen=True)
class Fleet:
    """All devices by host and name; `words` counts them."""

    cells: tuple[Cell, ...]
    trouble: tuple[Trouble, ...]
    words: str
    roomy: bool


def fleet(lines: Sequence[DeviceLine], now: datetime) -> Fleet:
    """The strip, and what is wrong in it: the worst first."""
    trouble = [found for line in lines if (found := _trouble(line, now)) is not None]
    order = {
        verdict: place
        for place, verdict in enumerate(words.ordered({found.verdict for found in trouble}))
    }
    trouble.sort(key=lambda found: order[found.verdict])
    hosts = len({line.host for line in lines})
    return Fleet(
        tuple(_cell(line, hosts > 1) for line in lines),
        tuple(trouble),
        _words(lines),
        len(lines) <= ROOMY,
    )


def _cell(line: DeviceLine, hosts: bool) -> Cell:
    job = line.job
    runs = f"{job.kernel} {job.shape} on {job.build}" if job is not None else ""
    said = [
        f"{line.device}: {line.health}",
        "drained" if line.drained else "",
        line.state,
        f"runs {runs}" if runs else "",
    ]
    why = f" ({line.reason})" if line.reason and line.health != DeviceHealth.good else ""
    return Cell(
        id=line.id,
        url=line.url,
        device=line.device,
        label=line.device if hosts else line.name,
        state=line.state,
        letter=LETTERS[DeviceState(line.state)],
        health=line.health,
        verdict=words.HEALTH_VERDICTS[line.health],
        drained=line.drained,
        sentence=", ".join(part for part in said if part) + why,
        job_url=None if job is None else job.url,
        job_words=runs,
    )


def _trouble(line: DeviceLine, now: datetime) -> Trouble | None:
    """Bad, suspect, silent, or with other bits than the rest. What a person has taken out of work
    is nobody's trouble.
    """
    if line.health == DeviceHealth.maintenance or line.drained:
        return None
    verdict = words.HEALTH_VERDICTS[line.health]
    if line.state == DeviceState.offline:
        if now - datetime.fromisoformat(line.heard_at) > GONE:
            return None
        said = f"offline: last heard {line.heard_words}"
        return Trouble(
            line.device,
            line.url,
            "error",
            said if line.health == DeviceHealth.good else f"{said}; {line.health} before",
        )
    if line.health in (DeviceHealth.bad, DeviceHealth.suspect):
        return Trouble(
            line.device,
            line.url,
            verdict,
            f"{line.health} since {line.since_words}: {line.reason or 'no reason given'}",
        )
    if line.canary is not None and line.canary.differs:
        return Trouble(
            line.device, line.url, "suspect", f"its last canary's {line.canary.standing}"
        )
    return None


def _words(lines: Sequence[DeviceLine]) -> str:
    """ "3 devices: 1 busy, 1 idle, 1 offline"."""
    if not lines:
        return "No device has been heard of yet."
    counts = {
        state: sum(line.state == state for line in lines)
        for state in (DeviceState.busy, DeviceState.idle, DeviceState.offline)
    }
    return f"{words.count(len(lines), 'device')}: " + ", ".join(
        f"{number} {state.value}" for state, number in counts.items() if number
    )
