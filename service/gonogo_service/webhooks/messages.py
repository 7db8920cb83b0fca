"""The messages about events: the payload that is stored and signed, and one line of text.

Payloads have the object's `version`: messages may arrive in any order, and the higher version is
the later one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_service.bisections import store as bisections
from gonogo_service.devices import store as devices
from gonogo_service.flags import store as flags
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.encoding import decode, encode, timestamp, utcnow
from gonogo_service.suites import runs

TYPES = (
    "job.finished",
    "run.finished",
    "flag.opened",
    "flag.resolved",
    "bisection.finished",
    "device.health_changed",
)
TEST = "webhook.test"

_JOB_FIELDS = (
    "id", "version", "state", "verdict", "error", "kernel", "test_key", "build", "branch",
    "target", "labels", "commit", "total", "done", "counts", "outcomes", "red", "hollow",
    "created_at", "finished_at",
)  # fmt: skip
_RUN_FIELDS = (
    "id", "version", "suite", "schedule", "due_at", "state", "verdict", "builds", "labels",
    "commit", "jobs", "seeds", "red", "hollow", "created_at", "finished_at",
)  # fmt: skip
_FLAG_FIELDS = (
    "id", "version", "kind", "state", "kernel", "test_key", "build", "branch", "arch", "board",
    "owner", "reason", "first_job", "last_job", "opened_at", "updated_at",
)  # fmt: skip
_BISECTION_FIELDS = (
    "id", "version", "state", "conclusion", "words", "error", "test_key", "signal", "builds",
    "runs", "findings", "created_at", "finished_at",
)  # fmt: skip
_DEVICE_FIELDS = (
    "id",
    "version",
    "device",
    "host",
    "arch",
    "board",
    "health",
    "reason",
    "drained",
    "health_at",
)


def event_of(type_: str, reference: Mapping[str, Any]) -> str:
    """Return the event's name from its type, object and version.

    `reference` is the payload of the outbox message. The name is the same whenever the message is
    handled again.
    """
    return f"{type_}:{json.dumps(reference, sort_keys=True, separators=(',', ':'))}"


def payload(
    session: Session, type_: str, reference: Mapping[str, Any], base_url: str | None
) -> dict[str, Any]:
    """Return the message of an event: {"type", "timestamp", "data"}.

    `data` is the object as it is now, or `reference` if the object is gone.
    """
    describe = _DESCRIBERS.get(type_)
    data = None if describe is None else describe(session, reference, (base_url or "").rstrip("/"))
    return {
        "type": type_,
        "timestamp": timestamp(utcnow()),
        "data": dict(reference) if data is None else decode(encode(data)),
    }


def sentence(message: Mapping[str, Any]) -> str:
    """Return the message as one line of text: its type alone if its object is gone."""
    data = message["data"]
    where = f" {data['url']}" if data.get("url") else ""
    match message["type"]:
        case "job.finished" if "kernel" in data:  # else the object was deleted meanwhile
            diagnosis = f": {data['diagnosis']}" if data.get("diagnosis") else ""
            result = data["verdict"] or data["state"]
            return f"{data['kernel']} on {data['build']}: {result}{diagnosis}{where}"
        case "run.finished" if "suite" in data:
            result = data["verdict"] or data["state"]
            return f"suite {data['suite']['name']} on {', '.join(data['builds'])}: {result}{where}"
        case "flag.opened" | "flag.resolved" as type_ if "kind" in data:
            word = "opened" if type_ == "flag.opened" else "resolved"
            text = f": {data['sentence']}" if data.get("sentence") else ""
            return (
                f"flag {data['kind']} {word} for {data['kernel']} on {data['build']}{text}{where}"
            )
        case "bisection.finished" if "builds" in data:
            first, last = data["builds"][0], data["builds"][-1]
            return f"bisection of {first} to {last}: {data['words'] or data['state']}{where}"
        case "device.health_changed" if "health" in data:
            why = f" ({data['reason']})" if data.get("reason") else ""
            return f"device {data['device']} is {data['health']}{why}{where}"
        case type_:
            return f"{type_}{where}"


def for_people(message: Mapping[str, Any]) -> str:
    """Return the line for people, in which an invisible space follows each "@" and "<".

    So user text can't notify a channel or a person.
    """
    return re.sub("[@<]", "\\g<0>\u200b", " ".join(sentence(message).split()))


def _job(session: Session, reference: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    job = jobs.get(session, str(reference["job"]))
    if job is None:
        return None
    return {
        **{name: getattr(job, name) for name in _JOB_FIELDS},
        "diagnosis": job.diagnosis_words,
        "url": base + urls.job(job.id),
    }


def _run(session: Session, reference: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    stored = runs.get(session, str(reference["run"]))
    if stored is None:
        return None
    run, _ = stored
    return {**{name: getattr(run, name) for name in _RUN_FIELDS}, "url": base + urls.run(run.id)}


def _flag(session: Session, reference: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    flag = flags.get(session, str(reference["flag"]))
    if flag is None:
        return None
    evidence = flag.evidence
    return {
        **{name: getattr(flag, name) for name in _FLAG_FIELDS},
        "sentence": evidence.get("diagnosis") or evidence.get("sentence"),
        "check": evidence.get("check"),
        "url": base + urls.flag(flag.id),
    }


def _bisection(session: Session, reference: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    bisection = bisections.get(session, str(reference["bisection"]))
    if bisection is None:
        return None
    return {
        **{name: getattr(bisection, name) for name in _BISECTION_FIELDS},
        "url": base + urls.bisection(bisection.id),
    }


def _device(session: Session, reference: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    device = devices.look(session, str(reference["device"]))
    if device is None:
        return None
    return {
        **{name: getattr(device, name) for name in _DEVICE_FIELDS},
        "url": base + urls.device(device.id),
    }


Describe = Callable[[Session, Mapping[str, Any], str], dict[str, Any] | None]
_DESCRIBERS: dict[str, Describe] = {
    "job.finished": _job,
    "run.finished": _run,
    "flag.opened": _flag,
    "flag.resolved": _flag,
    "bisection.finished": _bisection,
    "device.health_changed": _device,
}
