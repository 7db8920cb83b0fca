"""The page that submits a job: the choices of its form and its initial values.

The API checks what people type, so there is one set of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.plan import RIGHT
from gonogo.kernels.registry import KERNELS
from gonogo.spec.builds import Build, own_builds
from gonogo.spec.executors import EMULATOR, EXECUTORS, REPORTERS
from gonogo_dashboards.jobs import prefill
from gonogo_service.builds import store as builds
from gonogo_service.jobs import queue_estimate
from gonogo_service.tests import test_specs

MAX_BUILDS = 200
MAX_CHARS = 2_000
BEGINNING: Mapping[str, str] = {
    "kind": "kernel",
    "kernel": "layernorm_bw",
    "shape": "32, 1024",
    "rest": "",
    "rtol": "0.01",
    "atol": "0.05",
    "pcc": "",
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
"""Field -> its initial value where the address has none: a small job that takes seconds.

With this tolerance the right kernel passes, and the wrong one of tt-train-2025 fails.
"""


@dataclass(frozen=True)
class BuildHint:
    """A build to choose, with its executor and branch."""

    name: str
    words: str


@dataclass(frozen=True)
class FormView:
    """The choices of the form. Builds are hints only: a worker's host may know more."""

    values: Mapping[str, str]
    notice: str
    """The job or test that it starts from, or that this doesn't exist; "" for neither."""
    begun_url: str | None
    """The page of the job or the test that it starts from."""
    kernels: tuple[str, ...]
    executors: tuple[str, ...]
    reporters: tuple[str, ...]
    """The executors that run tests which exist already."""
    builds: tuple[BuildHint, ...]
    suites: tuple[str, ...]
    """Suites of earlier selections."""
    validate_url: str
    submit_url: str
    quotas: tuple[str, ...] = ()
    """How much of each quota the reader's token has used."""

    @property
    def filled(self) -> frozenset[str]:
        """Return the fields that aren't empty at first: an address says where they are emptied."""
        return frozenset(name for name, value in BEGINNING.items() if value)


def new_job(session: Session, query: Mapping[str, str]) -> FormView:
    """Return the form, filled from the address.

    `?from=` names a job's id and `?test=` a test's key; `?kernel=&shape=&build=...` override their
    values. Other names are ignored.
    """
    begun, notice, url = _begun(session, query)
    values = {
        name: query.get(name, begun.get(name, default))[:MAX_CHARS]
        for name, default in BEGINNING.items()
    }
    built, served = queue_estimate.executors(session)
    registered = [
        (
            build.name,
            f"{build.executor}, {build.branch}"
            + (f", commit {build.commit[:12]}" if build.commit else ""),
        )
        for build in builds.first(session, MAX_BUILDS)
    ]
    own_names = [(build.name, _about(build)) for build in own_builds().values()]
    return FormView(
        values=values,
        notice=notice,
        begun_url=url,
        kernels=tuple(KERNELS),
        executors=tuple(sorted(set(EXECUTORS) | built | served)),
        reporters=REPORTERS,
        builds=tuple(
            BuildHint(name, text) for name, text in dict([*registered, *own_names]).items()
        ),
        suites=tuple(test_specs.suites(session)),
        validate_url=urls.VALIDATE,
        submit_url=urls.SUBMIT,
    )


def _about(build: Build) -> str:
    """Return what a built-in build is: the right kernel, or a mutant of some kernels."""
    if build.executor != EMULATOR:
        return f"the installed {build.executor}"
    kernels = [name for name, kernel in KERNELS.items() if build.name in kernel.emulated_builds]
    if build.name == RIGHT:
        return "emulated: the right kernel"
    return f"emulated: a known-wrong {', '.join(kernels) or 'kernel'}"


def _begun(session: Session, query: Mapping[str, str]) -> tuple[Mapping[str, str], str, str | None]:
    """Return (fields, a notice, the page of the job or test that they come from)."""
    job, test = query.get("from", "")[:MAX_CHARS], query.get("test", "")[:MAX_CHARS]
    if job:
        fields = prefill.of_job(session, job)
        return _nothing("job", job) if fields is None else (fields, "the job", urls.job(job))
    if test:
        fields = prefill.of_test(session, test)
        return (
            _nothing("test", test) if fields is None else (fields, "the test", urls.history(test))
        )
    return {}, "", None


def _nothing(noun: str, name: str) -> tuple[Mapping[str, str], str, None]:
    return {}, f"There is no {noun} {name}. The form has its default values.", None
