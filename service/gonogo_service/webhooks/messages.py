"""What is said of an event: the payload that is stored and signed, and the line of text that people
read.

Payloads carry the object's `version`: messages may arrive in any order, and the higher version is
the later one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_storage.automation import bisections, runs
from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.devices import devices
from gonogo_storage.flags import flags
from gonogo_storage.jobs import jobs

TYPES = (
    "job.finished",
    "run.finished",
    "flag.opened",
    "flag.resolved",
    "bisection.finished",
    "device.health_changed",
)
TEST = "webhook.test"
EVERY = "*"

_JOB_FIELDS = (
    "id", "version", "state", "verdict", "error", "kernel", "test_key", "build", "branch", "target", "labels", "commit", "total",
    "done", "counts", "outcomes", "created_at", "finished_at",
)  # fmt: skip
_RUN_FIELDS = (
    "id", "version", "suite", "schedule", "due_at", "state", "verdict", "builds", "labels", "commit", "jobs", "seeds", "created_at",
    "finished_at",
)  # fmt: skip
_FLAG_FIELDS = (
    "id", "version", "kind", "state", "kernel", "test_key", "build", "branch", "arch", "board", "owner", "reason", "first_job",
    "last_job", "opened_at", "updated_at",
)  # fmt: skip
_BISECTION_FIELDS = (
    "id", "version", "state", "conclusion", "words", "error", "test_key", "signal", "builds", "runs", "findings", "created_at",
    "finished_at",
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


def event_of(type_: str, letter: Mapping[str, Any]) -> str:
    """The name of a happening, the same whenever its letter is handled again: type, object and
    version.
    """
    return f"{type_}:{json.dumps(letter, sort_keys=True, separators=(',', ':'))}"


def payload(
    session: Session, type_: str, letter: Mapping[str, Any], base_url: str | None
) -> dict[str, Any]:
    """The message of an event: {"type", "timestamp", "data"}; the data are the object as it is now,
    else the letter.
    """
    describe = _DESCRIBERS.get(type_)
    data = None if describe is None else describe(session, letter, (base_url or "").rstrip("/"))
    return {
        "type": type_,
        "timestamp": timestamp(utcnow()),
        "data": dict(letter) if data is None else data,
    }


def sentence(message: Mapping[str, Any]) -> str:
    """The message as one line for people."""
    data = message["data"]
    where = f" {data['url']}" if data.get("url") else ""
    match message["type"]:
        case "job.finished":
            said = f": {data['diagnosis']}" if data.get("diagnosis") else ""
            return f"{data['kernel']} on {data['build']}: {data['verdict'] or data['state']}{said}{where}"
        case "run.finished":
            return f"suite {data['suite']['name']} on {', '.join(data['builds'])}: {data['verdict'] or data['state']}{where}"
        case "flag.opened" | "flag.resolved" as type_:
            word = "opened" if type_ == "flag.opened" else "resolved"
            said = f": {data['sentence']}" if data.get("sentence") else ""
            return (
                f"flag {data['kind']} {word} for {data['kernel']} on {data['build']}{said}{where}"
            )
        case "bisection.finished":
            return f"bisection of {data['builds'][0]} to {data['builds'][-1]}: {data['words'] or data['state']}{where}"
        case "device.health_changed":
            why = f" ({data['reason']})" if data.get("reason") else ""
            return f"device {data['device']} is {data['health']}{why}{where}"
        case type_:
            return f"{type_}{where}"


def for_slack(message: Mapping[str, Any]) -> str:
    """The same for Slack: what people wrote calls no channel and makes no link, as its three
    special characters are escaped.
    """
    return sentence(message).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _job(session: Session, letter: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    job = jobs.get(session, str(letter["job"]))
    if job is None:
        return None
    shown = job.to_json()
    words = (job.diagnosis or {}).get("words")
    return {
        **{name: shown[name] for name in _JOB_FIELDS},
        "diagnosis": words,
        "url": base + urls.job(job.id),
    }


def _run(session: Session, letter: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    found = runs.get(session, str(letter["run"]))
    if found is None:
        return None
    shown = found[0].to_json()
    return {**{name: shown[name] for name in _RUN_FIELDS}, "url": base + urls.run(found[0].id)}


def _flag(session: Session, letter: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    flag = flags.get(session, str(letter["flag"]))
    if flag is None:
        return None
    proof = flag["evidence"] or {}
    told = {
        "sentence": proof.get("diagnosis") or proof.get("sentence"),
        "check": proof.get("check"),
    }
    return {
        **{name: flag[name] for name in _FLAG_FIELDS},
        **told,
        "url": base + urls.flag(flag["id"]),
    }


def _bisection(session: Session, letter: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    found = bisections.get(session, str(letter["bisection"]))
    if found is None:
        return None
    shown = found.to_json()
    return {
        **{name: shown[name] for name in _BISECTION_FIELDS},
        "url": base + urls.bisection(found.id),
    }


def _device(session: Session, letter: Mapping[str, Any], base: str) -> dict[str, Any] | None:
    device = devices.look(session, str(letter["device"]), timeout_s=0.0)
    if device is None:
        return None
    return {
        **{name: device[name] for name in _DEVICE_FIELDS},
        "url": base + urls.device(device["id"]),
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
