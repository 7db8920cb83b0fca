"""Result rows: what is sent of one seed, in plain JSON types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.judging import pairs
from gonogo.judging.judging import SeedJudgement
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_workers.messages.chunk import Work

MOST_MESSAGE_CHARS = 2000

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a seed ran: the device, which child process, and how many kernels that child had run
    before.
    """

    device: str
    host_run: str
    position: int


def judged(work: Work, place: Place, duration_ms: float | None, judgement: SeedJudgement) -> Row:
    """The row of a seed with numbers; its message, where it was compared with a reference build and
    differs by more than rounding.
    """
    row = {**head(work, place, duration_ms), **plain(judgement.to_json())}
    said = pairs.words(judgement)
    return row if said is None else {**row, "message": said[:MOST_MESSAGE_CHARS]}


def gauged(work: Work, place: Place, duration_ms: float | None, measured: Mapping[str, Any]) -> Row:
    """The row of a gauge's run, from gonogo.gauge.measure; `repeat` is the number of the part."""
    return {**plain(measured), **head(work, place, duration_ms)}


def failed(work: Work, place: Place, duration_ms: float | None, verdict: str, message: str) -> Row:
    """The row of a seed without numbers: hang, crash or error, and why."""
    return {
        **head(work, place, duration_ms),
        "verdict": Verdict(verdict).value,
        "explanation": Explanation.not_judged.value,
        "arithmetic": None,
        "policy": None,
        "outputs": {},
        "message": message[:MOST_MESSAGE_CHARS].replace("\x00", ""),
    }


def head(work: Work, place: Place, duration_ms: float | None) -> Row:
    """What every row begins with: which seed, where, for how long."""
    return {
        "seed": work[0],
        "repeat": work[1],
        "device": place.device,
        "host_run": place.host_run,
        "position": place.position,
        "duration_ms": None if duration_ms is None else round(duration_ms, 4),
    }


def plain(value: Any) -> Any:
    """The value in JSON's types: NumPy scalars as numbers, what isn't finite as null (its kind
    stands in `nonfinite_kinds`).
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):  # np.float64 is one
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} is no JSON value")


def rank(row: Row) -> tuple[int, float]:
    """For choosing the worst seeds: larger is worse; unexplained first, then by the largest budget
    ratio.
    """
    order = {
        Explanation.unexplained.value: 3,
        Explanation.suspect.value: 2,
        Explanation.inconclusive.value: 1,
    }
    ratios = [output.get("budget_ratio") for output in row["outputs"].values()]
    # A null ratio of an unexplained output comes from NaN or Inf: worse than any number
    broken = any(
        output.get("budget_ratio") is None and output.get("nonfinite")
        for output in row["outputs"].values()
    )
    return order.get(row["explanation"], 0), math.inf if broken else max(
        (ratio for ratio in ratios if ratio is not None), default=0.0
    )
