"""Gauges with made-up numbers: what workers would send of their parts, played through the storage
functions that ingest uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

import unchecked
from gonogo.closeness import NEEDED_RTOLS
from gonogo.gauge import kernels
from gonogo.spec.test_spec import TestSpec
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.kit.database.encoding import utcnow
from handed_out import hand_out

TEST: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [8, 64],
    "tolerance": {"dx": {"rtol": 0.001, "atol": 0.5}},
}
EDGE = 0.01
"""Tolerance that a right kernel may need."""
PASSES, FAILS, UNSEEN = 0.1, 2.0, 0.005
"""Errors of a wrong kernel: within atol .5, outside it, below what right ones need."""


def numbers(error: float) -> dict[str, Any]:
    """Statistics of an output whose every metric is `error`."""
    needed = {f"{rtol:g}": error for rtol in NEEDED_RTOLS}
    return {
        "count": 512,
        "nonfinite": 0,
        "needed_atol": needed,
        "tolerance_ratio": error / 0.5,
        "pcc_deficit": error,
        "rel_frobenius": error,
        "ulp_max": 100 * error,
        "arithmetic": "fused",
        "detection_limits": ["a common factor below 0.3 %"],
    }


def row(
    item: Sendable, seed: int, number: int, errors: Mapping[str, float], edge: float = EDGE
) -> dict[str, Any]:
    """A worker's row of one run; the part's error by its name, else FAILS. A part named in `errors`
    with NaN has crashed."""
    assert item.message["gauge"] is not None
    part = next(item_ for item_ in item.message["gauge"]["parts"] if item_["number"] == number)
    test = TestSpec.parse(item.message["test"])
    sentences = {part.name: part.sentence for part in (*kernels.right(test), *kernels.wrong(test))}
    head = {"seed": seed, "repeat": number, "device": "host/emulator:0", "duration_ms": 1.0}
    if part["executor"] == "emulator" and part["name"] not in sentences:
        lacking = {"verdict": "not_run", "message": "no such part for this test"}
        return {**head, **lacking, "outputs": {}}
    right = part["kind"] == "go"
    error = errors.get(part["name"], 0.001 if right else FAILS)
    if error != error:
        crash = {"verdict": "crash", "message": "the kernel's process was ended by SIGSEGV"}
        return {**head, **crash, "outputs": {}}
    explanation = "explained" if right else "unexplained"
    return {
        **head,
        "part": part["name"],
        "kind": part["kind"],
        "able": None if right else True,
        "verdict": "pass",
        "explanation": explanation,
        "outputs": {"dx": {**numbers(error), "explanation": explanation}},
        "edges": {"dx": {**numbers(edge), "alarm": 0.0}} if right else None,
        "sentence": sentences.get(part["name"], f"What {part['name']} does."),
    }


def dispatched(session: Session) -> list[Sendable]:
    """Every waiting chunk gets an attempt that a worker started."""
    for queue in chunks.waiting(session):
        dispatching.dispatch(session, chunks.choose(session, queue, 1000), now=utcnow())
    sendable = hand_out(session, now=utcnow())
    for item in sendable:
        about = {"worker": "w", "device": "host/emulator:0"}
        unchecked.started(session, item.attempt, about, now=utcnow())
    return sendable


def answer(
    session: Session,
    item: Sendable,
    errors: Mapping[str, float],
    *,
    ended: bool = True,
    edge: float = EDGE,
) -> None:
    """Everything that a worker sends of an attempt; not `ended`: its first half alone."""
    rows = [row(item, seed, number, errors, edge) for seed, number in item.work]
    body = {"batch": 0, "rows": rows if ended else rows[: len(rows) // 2], "artifacts": []}
    unchecked.store(session, item.attempt, body, now=utcnow())
    if ended:
        sent = {"outcome": "done", "sent": item.work, "batches": 1}
        unchecked.finished(session, item.attempt, sent, now=utcnow())


def played(
    session: Session, errors: Mapping[str, float], *, edge: float = EDGE
) -> Iterator[Sendable]:
    """All that waits is run, until nothing waits any more; what was run. edge: what a right kernel
    may need."""
    while items := dispatched(session):
        for item in items:
            answer(session, item, errors, edge=edge)
        yield from items
