"""The messages about events: the payload that is stored and signed, and one line of text.

Payloads have the object's `version`: messages may arrive in any order, and the higher version is
the later one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.devices import store as devices
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.encoding import decode, encode, timestamp, utcnow
from gonogo_service.suites import runs

TEST = "webhook.test"
Data = Mapping[str, Any]


class Noun(NamedTuple):
    """The content of messages about one kind of object, such as jobs or flags."""

    get: Callable[[Session, str], Any]
    """Returns the object with an id; None if there is none."""
    page: Callable[[str], str]
    """Returns the address of its page."""
    fields: str
    """The names of the attributes that the message contains."""
    more: Callable[[Any], Data] = lambda _: {}
    """Further fields, computed from the object."""


def _run(session: Session, run_id: str) -> Any:
    stored = runs.get(session, run_id)
    return None if stored is None else stored[0]


NOUNS: Mapping[str, Noun] = {
    "job": Noun(
        jobs.get,
        urls.job,
        "id version state verdict error kernel test_key build branch target labels commit total"
        " done counts outcomes red hollow created_at finished_at",
        lambda job: {"diagnosis": job.diagnosis_words},
    ),
    "run": Noun(
        _run,
        urls.run,
        "id version suite schedule due_at state verdict builds labels commit jobs seeds red hollow"
        " created_at finished_at",
    ),
    "flag": Noun(
        lambda session, flag_id: session.get(FlagRow, flag_id),
        urls.flag,
        "id version kind state kernel test_key build branch arch board owner reason first_job"
        " last_job opened_at updated_at",
        lambda flag: {
            "sentence": flag.diagnosis or flag.evidence.get("sentence"),
            "check": flag.evidence.get("check"),
        },
    ),
    "bisection": Noun(
        lambda session, bisection_id: session.get(BisectionRow, bisection_id),
        urls.bisection,
        "id version state conclusion words error test_key signal builds runs findings created_at"
        " finished_at",
    ),
    "device": Noun(
        devices.look,
        urls.device,
        "id version device host arch board health reason drained health_at",
    ),
}


def _flag_line(data: Data, word: str) -> str:
    sentence = _if(": ", data.get("sentence"))
    return f"flag {data['kind']} {word} for {data['kernel']} on {data['build']}{sentence}"


def _if(before: str, text: object, after: str = "") -> str:
    return f"{before}{text}{after}" if text else ""


LINES: Mapping[str, Callable[[Data], str]] = {
    "job.finished": lambda data: (
        f"{data['kernel']} on {data['build']}: {data['verdict'] or data['state']}"
        f"{_if(': ', data.get('diagnosis'))}"
    ),
    "run.finished": lambda data: (
        f"suite {data['suite']['name']} on {', '.join(data['builds'])}: "
        f"{data['verdict'] or data['state']}"
    ),
    "flag.opened": lambda data: _flag_line(data, "opened"),
    "flag.resolved": lambda data: _flag_line(data, "resolved"),
    "bisection.finished": lambda data: (
        f"bisection of {data['builds'][0]} to {data['builds'][-1]}: "
        f"{data['words'] or data['state']}"
    ),
    "device.health_changed": lambda data: (
        f"device {data['device']} is {data['health']}{_if(' (', data.get('reason'), ')')}"
    ),
}
"""Type of event -> its line, without the address."""
TYPES = tuple(LINES)


def event_of(type_: str, reference: Data) -> str:
    """Return the event's name from its type, object and version.

    `reference` is the payload of the outbox message. The name is the same whenever the message is
    handled again.
    """
    return f"{type_}:{json.dumps(reference, sort_keys=True, separators=(',', ':'))}"


def payload(session: Session, type_: str, reference: Data, base_url: str | None) -> dict[str, Any]:
    """Return the message of an event: {"type", "timestamp", "data"}.

    `data` is the object as it is now, or `reference` if the object is gone.
    """
    name = type_.partition(".")[0]
    noun = NOUNS[name]
    thing = noun.get(session, str(reference[name]))
    data = dict(reference)
    if thing is not None:
        data = {field: getattr(thing, field) for field in noun.fields.split()}
        data |= {**noun.more(thing), "url": (base_url or "").rstrip("/") + noun.page(thing.id)}
    return {"type": type_, "timestamp": timestamp(utcnow()), "data": decode(encode(data))}


def sentence(message: Data) -> str:
    """Return the message as one line of text: its type alone if its object is gone."""
    type_, data = message["type"], message["data"]
    try:
        line = LINES[type_](data)
    except KeyError:  # a test, or the object was deleted meanwhile
        line = type_
    return line + _if(" ", data.get("url"))


def for_people(message: Data) -> str:
    """Return the line for people, in which an invisible space follows each "@" and "<".

    So user text can't notify a channel or a person.
    """
    return re.sub("[@<]", "\\g<0>\u200b", " ".join(sentence(message).split()))
