"""The page that submits a job: the choices of its form, and its values from a job or a test.

The API checks what people type, so there is one set of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, get_args

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.kernels.registry import KERNELS
from gonogo.spec.builds import Build, fits_kernel, own_builds
from gonogo.spec.executors import EMULATOR, EXECUTORS, REPORTERS
from gonogo.spec.numerics import FORMAT_NAMES, Numerics
from gonogo.spec.selections import FIELD, is_selection
from gonogo_dashboards.kit.advice import FORM_COMPARATORS, rest_of
from gonogo_service.builds import store as builds
from gonogo_service.jobs import queue_estimate, store
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import encode
from gonogo_service.tests import assessments, test_specs
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import jobs_of

MAX_BUILDS = 200
MAX_CHARS = 2_000
BEGINNING: Mapping[str, str] = {
    "kind": "kernel",
    "kernel": "layernorm_bw",
    "shape": "32, 1024",
    "rtol": "0.01",
    "atol": "0.05",
    "executor": "emulator",
    "arch": "wormhole",
    "board": "n150",
    "build": "correct",
    "policy": "range",
    "count": "8",
    "start": "0",
    "repeats": "1",
    "priority": "5",
    **dict.fromkeys(("rest", "pcc", "epsilon", "suite", "filter", "stages", "shuffle"), ""),
    **dict.fromkeys(("these", "queue_deadline", "labels", "context", "reference"), ""),
    **dict.fromkeys(("repository", "sha", "pull_request"), ""),
    **dict.fromkeys(Numerics.model_fields, ""),
}
"""Field -> its initial value where the address has none: a small job that takes seconds.

With this tolerance the right kernel passes, and the wrong one of tt-train-2025 fails.
"""


@dataclass(frozen=True)
class OfferedBuild:
    """A build to choose."""

    name: str
    about: str
    """Its sentence: "s1 is subtracted twice."."""
    executor: str
    kernels: tuple[str, ...] = ()
    """The kernels that have it; () for all."""


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
    builds: tuple[OfferedBuild, ...]
    numerics: Mapping[str, tuple[tuple[str, str], ...]]
    """Field of a test's numerics -> its values with their labels; "" is the default."""
    suites: tuple[str, ...]
    """Suites of earlier selections."""
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
    built, served = queue_estimate.executors(session)
    registered = (
        OfferedBuild(
            build.name,
            f"{build.executor}, {build.branch}"
            + (f", commit {build.commit[:12]}" if build.commit else ""),
            build.executor,
        )
        for build in builds.first(session, MAX_BUILDS)
    )
    return FormView(
        values={
            name: query.get(name, begun.get(name, default))[:MAX_CHARS]
            for name, default in BEGINNING.items()
        },
        notice=notice,
        begun_url=url,
        kernels=tuple(KERNELS),
        executors=tuple(sorted(set(EXECUTORS) | built | served)),
        reporters=REPORTERS,
        builds=(*registered, *_defined_builds()),
        numerics=_numerics(),
        suites=tuple(test_specs.suites(session)),
    )


@cache
def _defined_builds() -> tuple[OfferedBuild, ...]:
    """Return the builds that need no registration; those of the emulator say what is wrong."""
    from gonogo.emulator import builds_of  # it loads NumPy, which other pages don't need

    kernels_of: dict[tuple[str, str], list[str]] = {}
    for name, kernel in KERNELS.items():
        known = builds_of(name)
        for build in (*kernel.emulated_builds, *kernel.public_bugs):
            kernels_of.setdefault((build, known[build].sentence), []).append(name)
    emulated = (
        OfferedBuild(build, sentence, EMULATOR, () if len(some) == len(KERNELS) else tuple(some))
        for (build, sentence), some in kernels_of.items()
    )
    installed = (
        OfferedBuild(
            build.name, build.sentence, executor.name, _kernels_of(own_builds()[build.name])
        )
        for executor in EXECUTORS.values()
        for build in executor.builds
    )
    return (*emulated, *installed)


def _kernels_of(build: Build) -> tuple[str, ...]:
    """Return the kernels of which a build produces an output; () for all."""
    kernels = tuple(name for name in KERNELS if fits_kernel(build, name))
    return () if len(kernels) == len(KERNELS) else kernels


def _numerics() -> dict[str, tuple[tuple[str, str], ...]]:
    choices = {}
    for name, field in Numerics.model_fields.items():
        values = FORMAT_NAMES if name == "input" else get_args(field.annotation)
        others = ((value, value) for value in values if value != field.default)
        choices[name] = (("", f"{field.default}, the default"), *others)
    return choices


def _begun(session: Session, query: Mapping[str, str]) -> tuple[Mapping[str, str], str, str | None]:
    """Return (fields, a notice, the page of the job or test that they come from)."""
    for noun, name, read, page in (
        ("job", query.get("from", ""), _of_job, urls.job),
        ("test", query.get("test", ""), _of_stored_test, urls.history),
    ):
        if name := name[:MAX_CHARS]:
            fields = read(session, name)
            if fields is None:
                notice = f"There is no {noun} {name}. The form has its default values."
                return {}, notice, None
            return fields, f"the {noun}", page(name)
    return {}, "", None


def _of_job(session: Session, job_id: str) -> dict[str, str] | None:
    """Return every field of a job's request; None where there is no job with this id."""
    job = store.get(session, job_id)
    if job is None:
        return None
    commit = {} if job.commit is None else asdict(job.commit)
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
        **{name: _text(value) for name, value in commit.items()},
    }


def _of_stored_test(session: Session, key: str) -> dict[str, str] | None:
    """Return the fields of a test, with the build and the target of its last job, if it ever ran.

    None: there is no test with this key.
    """
    test = session.get(TestSpecRow, key)
    if test is None:
        return None
    fields = _of_test(test.test)
    for variant in assessments.variants(session, key)[:1]:
        for job in jobs_of(session, variant, limit=1):
            fields |= {"build": job.build, "executor": job.executor}
            fields |= {"arch": job.variant.arch, "board": job.variant.board}
    return fields


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
    tolerance, numerics = canonical.get("tolerance", {}), canonical.get("numerics", {})
    return {
        "kind": "kernel",
        "kernel": str(canonical["kernel"]),
        "shape": ", ".join(str(size) for size in canonical.get("shape", ())),
        "epsilon": _text(canonical.get("epsilon")),
        **{name: _text(tolerance.get(name)) for name in FORM_COMPARATORS},
        **{name: value for name, value in numerics.items() if isinstance(value, str)},
        "rest": rest_of(canonical),
    }


def _of_seeds(job: JobRow) -> dict[str, str]:
    seeds = job.seeds
    if isinstance(seeds, list):
        return {"policy": "list", "these": ", ".join(str(seed) for seed in seeds)}
    policy = "range"
    if seeds.get("policy") == "sequential":
        policy = "sequential" if seeds.get("stop_on_finding", True) else "rate"
    count = _text(seeds.get("max") or seeds.get("count"))
    return {"policy": policy, "start": _text(seeds.get("start") or 0), "count": count}


def _text(value: Any) -> str:
    """Return a number or a text as one types it; "" for None."""
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
