"""Logs of failed seeds and attempts, and telemetry of the devices of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.jobs.error_maps import choices
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import SeedChoice
from gonogo_service.jobs import artifacts, job_attempts
from gonogo_service.jobs.model import ArtifactRow, AttemptRow

KIND = "log"
OF_A_HANG = ("watcher", "triage")
"""Kinds of artifacts about a hang."""
LOG_BYTES = 64 * 1024
"""Size of the end of a log that a worker stores."""
MAX_LOGS = 20
LAST_LINES, MAX_LINE = 12, 400
"""Lines, and their characters, that a page shows at its top."""
MAX_READINGS = 50


@dataclass(frozen=True)
class LogView:
    """The end of the kernel host's output when a seed failed; `cut`: it is longer."""

    seed: int
    repeat: int
    text: str
    cut: bool
    url: str
    more: tuple[tuple[str, str], ...]
    """Kind and address of what the watcher and triage tell of a hang."""
    others: tuple[SeedChoice, ...]
    """Seeds whose log is stored."""


@dataclass(frozen=True)
class Quantity:
    """A quantity of a device during the job: its name, its unit, and its course.

    `path` is an SVG path from the first to the last value in a box of 100 x 20.
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
    """Telemetry during the job by device, and the latest readings, newest first."""

    columns: tuple[str, ...]
    devices: tuple[DeviceReadings, ...]
    readings: tuple[tuple[str, datetime | None, tuple[float | None, ...]], ...]
    """(device, time of the end of an attempt, a number for each column)"""


def log(
    session: Session,
    job_id: str,
    heads: Sequence[ArtifactRow],
    requested: tuple[int, int] | None,
) -> LogView | None:
    """Return the log of the requested (seed, repeat), else of the first seed that has one.

    None: no seed has a log.
    """
    logs = [head for head in heads if head.kind == KIND]
    if not logs:
        return None
    chosen = next((head for head in logs if (head.seed, head.repeat) == requested), logs[0])
    pair = chosen.seed, chosen.repeat
    artifact = artifacts.get(session, job_id, chosen.id)
    text = str(artifact.content.get("text") or "") if artifact else ""
    return LogView(
        *pair,
        text,
        len(text.encode()) >= LOG_BYTES,
        urls.artifact(job_id, chosen.id),
        tuple(
            (head.kind, urls.artifact(job_id, head.id))
            for head in heads
            if head.kind in OF_A_HANG and (head.seed, head.repeat) == pair
        ),
        choices(job_id, logs[:MAX_LOGS], chosen),
    )


def last_lines(log: LogView | None, attempts: Sequence[AttemptRow]) -> str:
    """Return the last lines of the log of a seed that failed, else of the newest attempt."""
    text = log.text if log is not None else ""
    if not text.strip():
        text = next((attempt.log_tail for attempt in attempts if attempt.log_tail), "")
    return "\n".join(line[-MAX_LINE:] for line in text.rstrip().splitlines()[-LAST_LINES:])


def telemetry(session: Session, job_id: str) -> TelemetryView | None:
    """Return the telemetry of the devices during the job; None where none reports any."""
    attempts = job_attempts.readings(session, job_id)
    reports = [(one.device or "", one.finished_at, one.telemetry or {}) for one in attempts]
    names = list(
        dict.fromkeys(
            name
            for *_, telemetry in reports
            for name, value in telemetry.items()
            if words.quantity(name)[1] and words.reported_number(value) is not None
        )
    )
    if not names:
        return None
    by_device: dict[str, list[Mapping[str, Any]]] = {}
    for device, _, telemetry in reports:
        by_device.setdefault(device, []).append(telemetry)
    return TelemetryView(
        tuple(", ".join(words.quantity(name)) for name in names),
        tuple(_device(device, readings, names) for device, readings in sorted(by_device.items())),
        tuple(
            (device, at, tuple(words.reported_number(telemetry.get(name)) for name in names))
            for device, at, telemetry in reports[: -MAX_READINGS - 1 : -1]
        ),
    )


def _device(
    device: str, readings: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> DeviceReadings:
    quantities, spans = [], []
    for name in names:
        numbers = (words.reported_number(reading.get(name)) for reading in readings)
        values = [number for number in numbers if number is not None]
        if not values:
            continue
        label, unit = words.quantity(name)
        low, high = min(values), max(values)
        quantities.append(Quantity(label, unit, low, high, values[-1], _path(values)))
        ends = dict.fromkeys((words.number(low), words.number(high)))
        spans.append(f"{label} {' to '.join(ends)} {unit}")
    firmware = next((str(one["firmware"]) for one in readings[::-1] if one.get("firmware")), "")
    summary = f"{device}: {', '.join(spans)}."
    return DeviceReadings(device, len(readings), firmware, tuple(quantities), summary)


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
