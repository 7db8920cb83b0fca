"""What a job's workers printed and told: the log of a seed that failed, attempts that went wrong,
telemetry of their devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import SeedChoice
from gonogo_storage.jobs import artifacts, job_attempts

KIND = "log"
OF_A_HANG = ("watcher", "triage")
"""Kinds of artifacts that hold what was found out about a hang."""
KEPT_BYTES = 64 * 1024
"""What a worker keeps of a log: its end."""
MAX_LOGS = 20
MAX_READINGS = 50


@dataclass(frozen=True)
class LogView:
    """The end of what the kernel host had printed when a seed failed. `cut`: it had printed
    more.
    """

    seed: int
    repeat: int
    text: str
    cut: bool
    url: str
    more: tuple[tuple[str, str], ...]
    """Kind and address of what else was found out about the seed: of a hang, under the watcher and
    by triage."""
    others: tuple[SeedChoice, ...]
    """Seeds whose log was kept."""


@dataclass(frozen=True)
class Reading:
    """What a device told at the end of an attempt; one number for each of the view's quantities."""

    device: str
    at: str | None
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Quantity:
    """A quantity of a device during the job: name, unit, first to last as a line in a box of 100 x
    20 (an SVG path).
    """

    name: str
    unit: str
    low: float
    high: float
    last: float
    path: str


@dataclass(frozen=True)
class DeviceReadings:
    """A device during the job."""

    device: str
    readings: int
    firmware: str
    quantities: tuple[Quantity, ...]
    summary: str


@dataclass(frozen=True)
class TelemetryView:
    """Telemetry during the job, device by device, and the latest readings, newest first."""

    columns: tuple[str, ...]
    devices: tuple[DeviceReadings, ...]
    readings: tuple[Reading, ...]


def log(
    session: Session,
    job_id: str,
    heads: Sequence[Mapping[str, Any]],
    wanted: tuple[int, int] | None,
) -> LogView | None:
    """The log of the wanted (seed, repeat), else of the first seed that has one; None where no seed
    has.
    """
    logs = [head for head in heads if head["kind"] == KIND]
    if not logs:
        return None
    chosen = next((head for head in logs if _pair(head) == wanted), logs[0])
    found = artifacts.get(session, job_id, chosen["id"])
    if found is None:
        return None
    text, pair = str(found["content"].get("text") or ""), _pair(chosen)
    return LogView(
        chosen["seed"],
        chosen["repeat"],
        text,
        len(text.encode()) >= KEPT_BYTES,
        urls.artifact(job_id, chosen["id"]),
        tuple(
            (head["kind"], urls.artifact(job_id, head["id"]))
            for head in heads
            if head["kind"] in OF_A_HANG and _pair(head) == pair
        ),
        tuple(
            SeedChoice(
                head["seed"], head["repeat"], urls.job(job_id, seed=_pair(head)), head is chosen
            )
            for head in logs[:MAX_LOGS]
        ),
    )


def _pair(head: Mapping[str, Any]) -> tuple[int, int]:
    return head["seed"], head["repeat"]


def telemetry(session: Session, job_id: str) -> TelemetryView | None:
    """What the devices told during the job; None where none of them tells anything, as those of the
    emulator.
    """
    told = job_attempts.readings(session, job_id)
    pairs = (pair for each in told for pair in each["telemetry"].items())
    names = list(
        dict.fromkeys(
            name
            for name, value in pairs
            if words.quantity(name)[1] and words.reported_number(value) is not None
        )
    )
    if not names:
        return None
    by_device: dict[str, list[Mapping[str, Any]]] = {}
    for each in told:
        by_device.setdefault(each["device"] or "", []).append(each["telemetry"])
    devices = tuple(_device(device, found, names) for device, found in sorted(by_device.items()))
    readings = tuple(
        Reading(
            each["device"] or "",
            each["at"],
            tuple(words.reported_number(each["telemetry"].get(name)) for name in names),
        )
        for each in reversed(told[-MAX_READINGS:])
    )
    return TelemetryView(
        tuple(", ".join(words.quantity(name)) for name in names), devices, readings
    )


def _device(device: str, told: Sequence[Mapping[str, Any]], names: Sequence[str]) -> DeviceReadings:
    quantities = []
    for name in names:
        values = [
            value for each in told if (value := words.reported_number(each.get(name))) is not None
        ]
        if values:
            quantities.append(
                Quantity(*words.quantity(name), min(values), max(values), values[-1], _path(values))
            )
    said = [f"{each.name} {_span(each)}" for each in quantities]
    firmware = next((str(each["firmware"]) for each in reversed(told) if each.get("firmware")), "")
    return DeviceReadings(
        device, len(told), firmware, tuple(quantities), f"{device}: {', '.join(said)}."
    )


def _span(each: Quantity) -> str:
    low, high = words.number(each.low), words.number(each.high)
    return f"{low} {each.unit}" if low == high else f"{low} to {high} {each.unit}"


def _path(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    points = [
        (100 * place / max(1, len(values) - 1), 18 - 16 * (value - low) / spread)
        for place, value in enumerate(values)
    ]
    if len(points) == 1:
        points = [points[0], (100.0, points[0][1])]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
