"""A nightly test over many builds, made through the storage functions that ingest uses: masked
bugs, contexts, devices, shifts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

import stored_jobs
from gonogo.closeness import NEEDED_RTOLS
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import new_id


def submit(
    session: Session,
    seeds: Sequence[int],
    *,
    test: Mapping[str, Any] = stored_jobs.NIGHTLY,
    build: str,
    sequence: int,
    branch: str = "main",
    context: Any = "isolated",
    board: str = "n150",
) -> JobRow:
    """A queued job of one build of a branch."""
    about = {"build": build, "branch": branch, "build_sequence": sequence}
    place = {"board": board, "context": context}
    new = stored_jobs.new(test=test, seeds=seeds, **about, **place)
    new.request["context"] = context
    return jobs.create(session, new)


def row(
    seed: int,
    *,
    wrong: bool,
    within: bool,
    bits: str,
    device: str = "lab-1/wormhole:0",
    position: int = 0,
) -> dict[str, Any]:
    """A result row whose digests are of `bits`; it needs a part of the nightly test's atol,
    whatever the rtol."""
    result = stored_jobs.row(seed, wrong=wrong, within=within)
    for output, entry in result["outputs"].items():
        entry["digest"] = hashlib.sha256(f"{bits} {output} {seed}".encode()).hexdigest()[:16]
        needed = entry["tolerance_ratio"] * stored_jobs.NIGHTLY["tolerance"]["atol"]
        entry["needed_atol"] = {f"{rtol:g}": needed for rtol in NEEDED_RTOLS}
    return result | {"device": device, "position": position, "host_run": new_id()}


def night(
    session: Session,
    build: str,
    sequence: int,
    seeds: Iterable[int],
    *,
    wrong: bool = False,
    red: Iterable[int] = (),
    diagnosed: bool = False,
    bits: str | None = None,
    device: str = "lab-1/wormhole:0",
    context: Any = "isolated",
    test: Mapping[str, Any] = stored_jobs.NIGHTLY,
    branch: str = "main",
    board: str = "n150",
    kernel_s: float | None = None,
    hung: Iterable[int] = (),
) -> JobRow:
    """A finished job: `red` are the seeds outside the tolerance; equal `bits` are equal outputs
    (without: those of the build). kernel_s: the seconds a seed, give or take a percent."""
    numbers = list(seeds)
    place = {"branch": branch, "context": context, "board": board}
    job = submit(session, numbers, test=test, build=build, sequence=sequence, **place)
    position = 0 if context == "isolated" else len(context["before"])
    outside = set(red)
    rows = [
        row(
            seed,
            wrong=wrong,
            within=seed not in outside,
            bits=bits or build,
            device=device,
            position=position,
        )
        | {"kernel_s": kernel_s and kernel_s * (1.01 if seed % 2 else 0.99)}
        for seed in numbers
    ]
    lost = {seed: stored_jobs.unwell(seed, "hang", "no answer for 60 s") for seed in hung}
    rows = [lost.get(one["seed"], one) for one in rows]
    stored_jobs.report(session, job.id, rows, diagnosed=diagnosed)
    stored_jobs.finish(session, job.id)
    record = jobs.get(session, job.id)
    assert record is not None
    return record


def masked(session: Session) -> str:
    """The story of the founding test: red on two builds, green on the third with the same wrong
    terms, fixed on the fourth; its key."""
    for sequence, (build, red) in enumerate(
        (("9ca166977b", range(5)), ("b747edd158", range(5)), ("b0304ff7a5", ())), start=1
    ):
        job = night(session, build, sequence, range(5), wrong=True, red=red, diagnosed=True)
    night(session, "fixed-4c1e", 4, range(5))
    return job.test_key
