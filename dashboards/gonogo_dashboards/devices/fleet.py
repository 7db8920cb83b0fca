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
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth, DeviceState

GONE = timedelta(days=7)
"""A device that is silent for longer counts as removed: it is no trouble."""
ROOMY = 36
"""Maximum number of devices at which each cell has room for its name and its job."""
WORST_FIRST = ("fail", "suspect", "error")
"""The looks of trouble in the order of the list: bad, suspect, only offline."""
LETTERS = {DeviceState.busy: "B", DeviceState.idle: "I", DeviceState.offline: "–"}


@dataclass(frozen=True)
class Cell:
    """A device: the letter of its state, its name (with its host if there are several), and more.

    `runs` says what it runs.
    """

    line: DeviceLine
    letter: str
    label: str
    sentence: str
    runs: str


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
    several = len({line.device.host for line in lines}) > 1
    states = Counter(line.device.state for line in lines)
    numbers = ", ".join(f"{states[state]} {state}" for state in LETTERS if states[state])
    return Fleet(
        tuple(_cell(line, several) for line in lines),
        tuple(sorted(troubles, key=lambda trouble: WORST_FIRST.index(trouble.verdict))),
        tuple(Trouble(host, urls.devices(), "suspect", sentence) for host, sentence in flagged),
        f"{words.count(len(lines), 'device')}: {numbers}" if lines else "No devices yet.",
        len(lines) <= ROOMY,
    )


def _cell(line: DeviceLine, hosts: bool) -> Cell:
    device, job = line.device, line.job
    runs = f"{job.kernel} {job.shape} on {job.build}" if job is not None else ""
    parts = [f"{device.device}: {device.health}", "drained" if device.drained else ""]
    parts += [device.state, f"runs {runs}" if runs else ""]
    is_sick = device.reason and device.health is not DeviceHealth.good
    why = f" ({device.reason})" if is_sick else ""
    sentence = ", ".join(part for part in parts if part) + why
    name = device.device if hosts else device.name
    return Cell(line, LETTERS[device.state], name, sentence, runs)


def _trouble(line: DeviceLine, now: datetime) -> Trouble | None:
    """Return the trouble of a device that is bad, suspect or silent, or has other bits; else None.

    A device that a person took out of work is no trouble.
    """
    device, canary = line.device, line.device.canary
    is_offline = device.state is DeviceState.offline
    is_gone = is_offline and now - device.heard_at > GONE
    if device.health is DeviceHealth.maintenance or device.drained or is_gone:
        return None
    silence = f"offline, last heartbeat {words.since(device.heard_at, now)}" if is_offline else ""
    if device.health in SICK:
        lasting = words.lasting(device.health_at, now)
        sick = f"{device.health} {lasting}: {device.reason or 'no reason given'}"
        verdict, text = device.health.mark, f"{sick}; {silence}".removesuffix("; ")
    elif silence:
        verdict, text = "error", silence
    elif canary is not None and canary.golden is CanaryOutcome.differs:
        verdict, text = "suspect", f"its last canary's {canary.golden.sentence}"
    else:
        return None
    return Trouble(device.device, urls.device(device.id), verdict, text)
