"""Initial values of the form that submits a job, from a job or from a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from gonogo.spec.selections import FIELD, is_selection
from gonogo_dashboards.kit.tolerance_advice import FORM_COMPARATORS
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import encode
from gonogo_service.tests import assessments, test_specs
from gonogo_service.tests.variants import jobs_of


def of_job(session: Session, job_id: str) -> dict[str, str] | None:
    """Return every field of a job's request; None where there is no job with this id."""
    job = jobs.get(session, job_id)
    if job is None:
        return None
    return {
        **_of_test(job.test),
        "build": job.build,
        **asdict(job.target),
        **_of_seeds(job),
        "repeats": str(job.repeats),
        "priority": str(job.priority),
        "queue_deadline": _text((job.deadline_at - job.created_at).total_seconds()),
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(job.labels.items())),
        "context": "" if job.context == "isolated" else encode(job.context),
        "reference": job.reference or "",
        "repository": job.commit.repository if job.commit else "",
        "sha": job.commit.sha if job.commit else "",
        "pull_request": _text(job.commit.pull_request if job.commit else None),
    }


def of_test(session: Session, key: str) -> dict[str, str] | None:
    """Return the fields of a test, with the build and the target of its last job, if it ever ran.

    None: there is no test with this key.
    """
    test = test_specs.get(session, key)
    if test is None:
        return None
    last = [
        job
        for variant in assessments.variants(session, key)[:1]
        for job in jobs_of(session, variant, limit=1)
    ]
    place = {
        name: text
        for job in last
        for name, text in (("build", job.build), ("executor", job.executor))
    }
    where = {
        name: text
        for job in last
        for name, text in (("arch", job.variant.arch), ("board", job.variant.board))
    }
    return {**_of_test(test.test), **place, **where}


def _of_test(canonical: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a test in its canonical form.

    What has no field of its own is in the JSON field `rest`.
    """
    if is_selection(canonical):
        inner = canonical[FIELD]
        shuffle = inner.get("shuffle")
        return {
            "kind": "selection",
            "suite": _text(inner.get("suite")),
            "filter": _text(inner.get("filter")),
            "shuffle": "yes" if shuffle is True else _text(shuffle),
            "stages": ", ".join(inner.get("stages", ())),
        }
    rest = {
        name: value
        for name, value in canonical.items()
        if name not in ("kernel", "shape", "epsilon", "tolerance")
    }
    tolerance = canonical.get("tolerance", {})
    typed = {name: _text(tolerance.get(name)) for name in FORM_COMPARATORS}
    others = {name: value for name, value in tolerance.items() if name not in FORM_COMPARATORS}
    return {
        "kind": "kernel",
        "kernel": str(canonical["kernel"]),
        "shape": ", ".join(str(size) for size in canonical.get("shape", ())),
        "epsilon": _text(canonical.get("epsilon")),
        **typed,
        "rest": encode(rest | ({"tolerance": others} if others else {})) if rest or others else "",
    }


def _of_seeds(job: JobRow) -> dict[str, str]:
    seeds = job.seeds
    if isinstance(seeds, list):
        return {"policy": "list", "these": ", ".join(str(seed) for seed in seeds)}
    start, policy = _text(seeds.get("start") or 0), "range"
    if seeds.get("policy") == "sequential":
        policy = "sequential" if seeds.get("stop_on_finding", True) else "rate"
    return {
        "policy": policy,
        "start": start,
        "count": _text(seeds.get("max") or seeds.get("count")),
    }


def _text(value: Any) -> str:
    """Return a number or a text as one types it; "" for None."""
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
