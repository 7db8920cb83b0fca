"""The fleet as a strip of cells, and its devices in trouble. Pure: from the lines of devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gonogo import urls
from gonogo_dashboards.devices.lines import DeviceLine
from gonogo_dashboards.kit import words
from gonogo_service.devices.sick_devices import SICK
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import DeviceHealth, DeviceState

GONE = timedelta(days=7)
"""A device that is silent for longer counts as removed: it is no trouble."""
ROOMY = 36
"""Maximum number of devices at which each cell has room for its name and its job."""
WORST_FIRST = ("fail", "suspect", "error")
"""The looks of trouble in the order of the list: bad, suspect, only offline."""
LETTERS = {DeviceState.busy: "B", DeviceState.idle: "I", DeviceState.offline: "–"}


@dataclass(frozen=True)
class Cell:
    """A device: the letter of its state, the verdict whose looks it takes, and a sentence."""

    id: str
    url: str
    device: str
    label: str
    """Its name, with its host where there are several."""
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
    """A device, or a host by its name, that needs attention, and why."""

    device: str
    url: str
    verdict: str
    words: str


@dataclass(frozen=True)
class Fleet:
    """All devices by host and name; `words` counts them."""

    cells: tuple[Cell, ...]
    trouble: tuple[Trouble, ...]
    flagged: tuple[Trouble, ...]
    """Hosts that sent what only a wrong or hostile host sends."""
    words: str
    roomy: bool


def fleet(
    lines: Sequence[DeviceLine], now: datetime, flagged: Sequence[tuple[str, str]] = ()
) -> Fleet:
    """Return the strip, its devices in trouble, the worst first, and the flagged hosts.

    `flagged` are their names and sentences.
    """
    troubles = [trouble for line in lines if (trouble := _trouble(line, now)) is not None]
    several = len({line.host for line in lines}) > 1
    states = Counter(line.state for line in lines)
    numbers = ", ".join(f"{states[state]} {state}" for state in LETTERS if states[state])
    return Fleet(
        tuple(_cell(line, several) for line in lines),
        tuple(sorted(troubles, key=lambda trouble: WORST_FIRST.index(trouble.verdict))),
        tuple(Trouble(host, urls.devices(), "suspect", sentence) for host, sentence in flagged),
        f"{words.count(len(lines), 'device')}: {numbers}" if lines else "No devices yet.",
        len(lines) <= ROOMY,
    )


def _cell(line: DeviceLine, hosts: bool) -> Cell:
    job = line.job
    runs = f"{job.kernel} {job.shape} on {job.build}" if job is not None else ""
    parts = [f"{line.device}: {line.health}", "drained" if line.drained else "", line.state]
    parts.append(f"runs {runs}" if runs else "")
    why = f" ({line.reason})" if line.reason and line.health != DeviceHealth.good else ""
    return from_object(
        Cell,
        line,
        label=line.device if hosts else line.name,
        letter=LETTERS[DeviceState(line.state)],
        verdict=words.HEALTH_VERDICTS[line.health],
        sentence=", ".join(part for part in parts if part) + why,
        job_url=None if job is None else job.url,
        job_words=runs,
    )


def _trouble(line: DeviceLine, now: datetime) -> Trouble | None:
    """Return the trouble of a device that is bad, suspect or silent, or has other bits; else None.

    A device that a person took out of work is no trouble.
    """
    is_offline = line.state == DeviceState.offline
    is_gone = is_offline and now - datetime.fromisoformat(line.heard_at) > GONE
    if line.health == DeviceHealth.maintenance or line.drained or is_gone:
        return None
    silence = f"offline, last heartbeat {line.heard_words}" if is_offline else ""
    if line.health in SICK:
        sick = f"{line.health} {line.lasting}: {line.reason or 'no reason given'}"
        verdict, text = words.HEALTH_VERDICTS[line.health], f"{sick}; {silence}".removesuffix("; ")
    elif silence:
        verdict, text = "error", silence
    elif line.canary is not None and line.canary.differs:
        verdict, text = "suspect", f"its last canary's {line.canary.standing}"
    else:
        return None
    return Trouble(line.device, line.url, verdict, text)
