"""Jobs with results, made through the storage functions that ingest uses: what the pages' tests
look at."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import unchecked
from benchmarks.harvest import DX, VERDICTS
from gonogo.spec.verdicts import JUDGE, Explanation
from gonogo_service.devices import goldens, heartbeats
from gonogo_service.devices import store as devices
from gonogo_service.jobs import chunks, closing, dispatching, work
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import ChunkRow, JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.jobs.values import PooledOutput, SuspectSeeds
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import ChunkState, JobState
from gonogo_service.results.batch import Batch
from parsed_tests import parse_test

NIGHTLY: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [3, 273, 1, 8462],
    "inputs": {"regime": "uniform", "low": -1, "high": 1},
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
_DGAMMA = {
    "tolerance_ratio": 0.5,
    "rounding_ratio": 0.61,
    "distance": 0.4,
    "max_abs": 0.27,
    "rms": 0.05,
    "pcc_deficit": 3e-6,
}
ARITHMETIC = "tt-train"
LIMITS = ["a common factor below 0.3 %"]
"""The detection limits of every output that rounding explains."""
REASON = "0.41 % of the values are no rounding of tt-train"
PLACES = "they lie in all rows, and in all columns"
FAULT = "s1 is subtracted twice in P_centered: explains 99.9 % of the misfit"
"""The fault of dx that a diagnosed seed names: that of tt-train-2025."""


def new(
    *,
    test: Mapping[str, Any] = NIGHTLY,
    build: str = "tt-train-2025",
    seeds: int | Sequence[int] = 8,
    **changes: Any,
) -> NewJob:
    """A request for these seeds; a number means 0, 1, ..."""
    spec = parse_test(test)
    numbers = tuple(range(seeds) if isinstance(seeds, int) else seeds)
    wanted_seeds = {"start": 0, "count": seeds} if isinstance(seeds, int) else list(numbers)
    place = {"branch": "emulator", "build_sequence": 1, "executor": "emulator"}
    device = {"arch": "wormhole", "board": "n150"}
    of_test = {name: getattr(spec, name) for name in ("kernel", "workload_key", "elements")}
    request = {"test": dict(test), "build": build, "seeds": wanted_seeds}
    about = {"test_key": spec.key, "canonical": spec.canonical(), "request": request, **of_test}
    return NewJob(**{**about, **place, **device, "build": build, "seeds": numbers, **changes})


def together(explanation: str, **changes: Any) -> SuspectSeeds:
    """Return the status of a job whose seeds together give dx this explanation."""
    pooled = {"dx": PooledOutput(Explanation(explanation), 2, "", [], None)}
    nothing: dict[str, Any] = {"seeds": [], "added": [], "rounds": 0, "count": 0, "words": ""}
    about = {"explanation": Explanation(explanation), "pooled": pooled, "policy": ""}
    return SuspectSeeds(**{**nothing, **about, **changes})


def submit(session: Session, **changes: Any) -> JobRow:
    """A queued job of such a request."""
    return jobs.create(session, new(**changes))


def row(seed: int, *, wrong: bool, within: bool = True) -> dict[str, Any]:
    """A result row of the nightly test, as a worker sends it: dx wrong or right, dgamma and dbeta
    right."""
    noise = random.Random(seed)
    dx = {name: values[wrong] * noise.uniform(0.96, 1.04) for name, values in DX.items()}
    if not within:
        dx["tolerance_ratio"] *= 40
    verdict = VERDICTS[wrong, within]
    right = {name: value * noise.uniform(0.9, 1.1) for name, value in _DGAMMA.items()}
    shared = {"nonfinite": 0, "count": 6930378, "digest": f"{seed:016x}", "arithmetic": ARITHMETIC}
    explained = {"explanation": "explained", "detection_limits": LIMITS, "reason": "", "places": ""}
    unexplained = {"explanation": "unexplained", "reason": REASON, "places": PLACES}
    of_dx = unexplained if wrong else explained
    return {
        "seed": seed,
        "repeat": 0,
        "verdict": verdict,
        "explanation": of_dx["explanation"],
        "device": "emulator:0",
        "host_run": "a" * 8,
        "position": seed,
        "duration_ms": 812.5,
        "arithmetic": ARITHMETIC,
        "judge": JUDGE,
        "outputs": {
            "dx": {"verdict": verdict, **dx, **shared, **of_dx},
            "dgamma": {"verdict": "pass", **right, **shared, **explained},
            "dbeta": {"verdict": "pass", **right, **shared, **explained},
        },
    }


def with_fault(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the fault of dx named where dx is wrong."""
    outputs = dict(row["outputs"])
    dx = outputs.get("dx")
    if dx is not None and dx["explanation"] == "unexplained":
        best = {"id": "twice:s1", "label": "s1 is subtracted twice", "size": 1.0, "share": 0.999}
        outputs["dx"] = dx | {"fault": FAULT, "fault_share": 0.999, "faults": [best]}
    return {**row, "outputs": outputs}


def unwell(seed: int, verdict: str, message: str) -> dict[str, Any]:
    """A row without numbers: hang, crash or error."""
    lost = {"verdict": verdict, "message": message, "outputs": {}}
    return {"seed": seed, "repeat": 0, "device": "emulator:0", **lost}


def report(
    session: Session, job_id: str, rows: list[dict[str, Any]], *, diagnosed: bool = False
) -> None:
    """Store a batch as ingest does: rows, counters, events; the job runs.

    diagnosed: the fault of a wrong dx is named.
    """
    now = utcnow()
    job = closing.lock(session, job_id)
    assert job is not None
    if job.state == JobState.queued:
        job.state, job.started_at = JobState.running, now
    named = [with_fault(row) for row in rows] if diagnosed else rows
    closing.record(session, job, new_id(), Batch.of(named), now=now)
    session.flush()


def finish(session: Session, job_id: str) -> None:
    """Close every chunk, and so the job."""
    now = utcnow()
    job = closing.lock(session, job_id)
    assert job is not None
    while work.make_chunk(session, job_id) is not None:
        pass
    for chunk in list(session.scalars(select(ChunkRow).where(ChunkRow.job_id == job_id))):
        closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
    session.flush()


def finished(session: Session, *, wrong: bool = True, seeds: int = 8, **changes: Any) -> JobRow:
    """A job that is over: every seed stored, diagnosed where it is wrong."""
    job = submit(session, build="tt-train-2025" if wrong else "correct", seeds=seeds, **changes)
    report(session, job.id, [row(seed, wrong=wrong) for seed in range(seeds)], diagnosed=wrong)
    finish(session, job.id)
    record = jobs.get(session, job.id)
    assert record is not None
    return record


def facts_of(host: str, name: str, **changes: Any) -> dict[str, Any]:
    """The facts that a worker reports of a Wormhole."""
    names = {"device": f"{host}/{name}", "host": host, "name": name}
    board = {"arch": "wormhole", "board": "n150", "queue": "ttnn.wormhole.n150"}
    place = {"serial": f"010001861190201{name[-1]}", "pci": f"0000:0{name[-1]}:00.0"}
    software = {"driver": "TT-KMD 2.0.0", "source": "tt-smi"}
    firmware = {"firmware": {"fw_bundle_version": "18.3.0.0"}}
    return {**names, **board, **place, **software, **firmware, **changes}


def bad(device: str, reason: str, *steps: str, outcome: str = "no answer") -> dict[str, Any]:
    """A worker's report after these recovery steps failed."""
    tried = [{"rung": step, "outcome": outcome, "output": "?"} for step in steps]
    report = {"device": device, "health": "bad", "reason": reason, "worker": "w"}
    return {**report, "evidence": {"steps": tried}}


def device(session: Session) -> None:
    """A Wormhole that has been heard of, and was found bad."""
    facts, now = facts_of("lab-1", "wormhole:0"), utcnow()
    heartbeats.heard(session, facts, worker="worker-1", attempt=None, now=now)
    heartbeats.report(session, bad(facts["device"], "no answer", "re-open"), now=now)


def fleet(
    session: Session,
    job: JobRow,
    *,
    host: str = "lab-1",
    reason: str = "it hung, and tt-smi -r did not help",
) -> dict[str, str]:
    """Four Wormholes of one host: one runs the job, one gives other bits than the rest, one is bad,
    one idles; their ids by name."""
    now = utcnow()
    names = [f"wormhole:{index}" for index in range(4)]
    (attempt,) = dispatching.dispatch(session, chunks.choose(session, job.queue, 1), now=now)
    busy = f"{host}/{names[0]}"
    about = {"worker": f"{busy}/1", "device": busy, "host": host}
    unchecked.started(session, attempt, about, now=now)

    def sing(index: int, bits: str, seconds: float) -> None:
        digests = {"dx": bits, "dgamma": "5f0c77aa91be"}
        evidence = {"executor": "ttnn", "canary": "ttnn", "digests": digests}
        body = {"device": f"{host}/{names[index]}", "health": "good", "reason": "the canary passed"}
        body |= {"evidence": evidence, "worker": "w", "routine": True}
        goldens.report(session, body, now=now - timedelta(seconds=seconds))

    for index, name in enumerate(names):
        facts, current = facts_of(host, name), None if index else attempt
        heartbeats.heard(session, facts, worker=f"{host}/{name}/1", attempt=current, now=now)
        telemetry = {"temperature_c": 45.2 + index, "clock_mhz": 1000.0, "power_w": 31.0}
        heartbeats.measured(session, facts["device"], telemetry)
    for index, bits, seconds in (
        (0, "c0ffee123456", 90),
        (1, "c0ffee123456", 80),
        (2, "badbadbadbad", 70),
        (0, "c0ffee123456", 5),
    ):
        sing(index, bits, seconds)
    sick = bad(f"{host}/{names[3]}", reason, "re-open", "reset_device", outcome=reason)
    heartbeats.report(session, sick, now=now)
    return {device.name: device.id for device in devices.list_(session, now=now)}
