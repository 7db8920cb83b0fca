"""Result rows: the data sent for one seed, in plain JSON types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.judging import pairs
from gonogo.judging.judging import SeedJudgement, exact_words
from gonogo.spec.verdicts import WORST_FIRST, Explanation, Verdict, severity
from gonogo_workers.messages.chunk import Work

MAX_MESSAGE_CHARS = 2000

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """The place of a run: the device, the child process, and the kernels that ran in it before.

    None: there was none, or nothing ran.
    """

    device: str | None
    host_run: str | None
    position: int | None
    kernel_s: float | None = None
    """The seconds that the kernel took there; None: not known."""


def judged(work: Work, place: Place, duration_ms: float | None, judgement: SeedJudgement) -> Row:
    """Return the row of a seed with numbers.

    It has a message where exact inputs show a wrong term, or where the seed was compared with a
    reference build and differs by more than rounding.
    """
    row = {**head(work, place, duration_ms), **plain(judgement.to_json())}
    message = pairs.words(judgement) or exact_words(judgement)
    return row if message is None else {**row, "message": message[:MAX_MESSAGE_CHARS]}


def gauged(work: Work, place: Place, duration_ms: float | None, measured: Mapping[str, Any]) -> Row:
    """Return the row of a gauge's run, from gonogo.gauge.measure; `repeat` is the part's number."""
    return {**plain(measured), **head(work, place, duration_ms)}


def failed(work: Work, place: Place, duration_ms: float | None, verdict: str, message: str) -> Row:
    """Return the row of a seed without numbers: hang, crash or error, and why."""
    return {
        **head(work, place, duration_ms),
        "verdict": Verdict(verdict).value,
        "explanation": Explanation.not_judged.value,
        "arithmetic": None,
        "judge": None,
        "outputs": {},
        "message": message[:MAX_MESSAGE_CHARS].replace("\x00", ""),
    }


def head(work: Work, place: Place, duration_ms: float | None) -> Row:
    """Return the fields that every row begins with: seed, place and duration."""
    return {
        "seed": work[0],
        "repeat": work[1],
        "device": place.device,
        "host_run": place.host_run,
        "position": place.position,
        "kernel_s": place.kernel_s,
        "duration_ms": None if duration_ms is None else round(duration_ms, 4),
    }


def artifact(kind: str, work: Work, content: Mapping[str, Any], output: str | None = None) -> Row:
    """Return an artifact of a seed, or of one of its outputs."""
    return {"kind": kind, "seed": work[0], "repeat": work[1], "output": output, "content": content}


def plain(value: Any) -> Any:
    """Return the value in JSON's types: NumPy scalars as numbers, non-finite numbers as null.

    The kind of a non-finite number is in `nonfinite_kinds`.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):  # np.float64 is one
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def rank(row: Mapping[str, Any]) -> tuple[int, float]:
    """Return a sort key for choosing the seeds that get artifacts: larger is worse.

    It is the order of gonogo.spec.verdicts.severity; a seed without outputs has nothing to show.
    """
    verdict, size = severity(row["verdict"], row["outputs"])
    return (-verdict, -size) if row["outputs"] else (-len(WORST_FIRST), 0.0)
