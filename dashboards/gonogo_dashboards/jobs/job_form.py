"""The page that submits a job: what its form offers and begins with. The API checks what is typed,
so that there is one set of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.builds import own_builds
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.selections import OWN_EXECUTORS, REPORTERS
from gonogo_dashboards.jobs import prefill
from gonogo_dashboards.kit.routes import Site
from gonogo_storage.catalogue import builds, test_specs
from gonogo_storage.jobs import queue_estimate

MAX_BUILDS = 200
MAX_CHARS = 2_000
BEGINNING: Mapping[str, str] = {
    "kind": "kernel",
    "kernel": "layernorm_bw",
    "shape": "32, 1024",
    "rest": "",
    "rtol": "",
    "atol": "",
    "epsilon": "",
    "suite": "",
    "filter": "",
    "stages": "",
    "shuffle": "",
    "executor": "emulator",
    "arch": "wormhole",
    "board": "n150",
    "build": "correct",
    "policy": "range",
    "count": "8",
    "start": "0",
    "these": "",
    "repeats": "1",
    "priority": "5",
    "queue_deadline": "",
    "labels": "",
    "context": "",
    "reference": "",
    "repository": "",
    "sha": "",
    "pull_request": "",
}
"""Field -> what stands in it where the address says nothing: a small job that is over within
seconds."""


@dataclass(frozen=True)
class BuildHint:
    """A build to choose, and whose it is."""

    name: str
    words: str


@dataclass(frozen=True)
class FormView:
    """What the form offers. Builds are hints only: a worker's host may know more."""

    values: Mapping[str, str]
    notice: str
    """What it began with, or that this isn't there; "" for its own beginning."""
    begun_url: str | None
    """The page of the job or the test that it began with."""
    kernels: tuple[str, ...]
    executors: tuple[str, ...]
    reporters: tuple[str, ...]
    """Of the executors those that run tests which exist already."""
    builds: tuple[BuildHint, ...]
    suites: tuple[str, ...]
    """Of selections that were submitted before."""
    validate_url: str
    submit_url: str


def new_job(session: Session, query: Mapping[str, str]) -> FormView:
    """The form, filled from the address: `?from=` a job's id or `?test=` a test's key, and
    `?kernel=&shape=&build=...` before those.

    Other names are left out.
    """
    begun, notice, url = _begun(session, query)
    values = {
        name: query.get(name, begun.get(name, default))[:MAX_CHARS]
        for name, default in BEGINNING.items()
    }
    built, served = queue_estimate.executors(session)
    registered = [
        (str(each["name"]), f"{each['executor']}, {each['branch']}")
        for each in builds.list_(session, limit=MAX_BUILDS).items
    ]
    own_names = [(build.name, build.executor) for build in own_builds().values()]
    return FormView(
        values=values,
        notice=notice,
        begun_url=url,
        kernels=tuple(KERNELS),
        executors=tuple(sorted(OWN_EXECUTORS | built | served)),
        reporters=REPORTERS,
        builds=tuple(BuildHint(name, text) for name, text in dict([*registered, *own_names]).items()),
        suites=tuple(test_specs.suites(session)),
        validate_url=urls.VALIDATE,
        submit_url=urls.SUBMIT,
    )


def _begun(session: Session, query: Mapping[str, str]) -> tuple[Mapping[str, str], str, str | None]:
    """(fields, a notice, the page of what they are of)."""
    job, test = query.get("from", "")[:MAX_CHARS], query.get("test", "")[:MAX_CHARS]
    if job:
        found = prefill.of_job(session, job)
        return _nothing("job", job) if found is None else (found, "the job", urls.job(job))
    if test:
        found = prefill.of_test(session, test)
        return _nothing("test", test) if found is None else (found, "the test", urls.history(test))
    return {}, "", None


def _nothing(noun: str, name: str) -> tuple[Mapping[str, str], str, None]:
    return {}, f"There is no {noun} {name}: this is the form's own beginning.", None


def add(site: Site) -> None:
    """Adds the page, which only reads."""

    def read(session: Session, request: Request, _: datetime) -> FormView:
        return new_job(session, request.query_params)

    site.add(urls.NEW_JOB, "jobs/new_job.html", read)
