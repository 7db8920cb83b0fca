"""The page that submits a job: what its form offers and begins with. The API checks what is typed, so that there is one set of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import urls
from gonogo.builds import own_builds
from gonogo.kernels import KERNELS
from gonogo.selections import OWN_EXECUTORS, REPORTERS
from storage import builds, queue_reads

MOST_BUILDS = 200
MOST_CHARS = 2_000
BEGINNING: Mapping[str, str] = {
    "kernel": "layernorm_bw",
    "shape": "32, 1024",
    "rest": "",
    "rtol": "",
    "atol": "",
    "epsilon": "",
    "executor": "emulator",
    "arch": "wormhole",
    "board": "n150",
    "build": "correct",
    "policy": "range",
    "count": "8",
    "start": "0",
    "repeats": "1",
    "priority": "5",
    "labels": "",
}
"""Field -> what stands in it where the address says nothing: a small job that is over within seconds."""


@dataclass(frozen=True)
class FormView:
    """What the form offers. Builds are hints only: a worker's host may know more."""

    values: Mapping[str, str]
    kernels: tuple[str, ...]
    executors: tuple[str, ...]
    builds: tuple[str, ...]
    validate_url: str
    submit_url: str


def new_job(session: Session, query: Mapping[str, str]) -> FormView:
    """The form, filled from the address (`?kernel=&shape=&build=...`; other names are left out)."""
    values = {name: query.get(name, default)[:MOST_CHARS] for name, default in BEGINNING.items()}
    built, served = queue_reads.executors(session)
    registered = [str(each["name"]) for each in builds.list_(session, limit=MOST_BUILDS).items]
    return FormView(
        values=values,
        kernels=tuple(KERNELS),
        executors=tuple(sorted((OWN_EXECUTORS | built | served) - set(REPORTERS))),
        builds=tuple(dict.fromkeys([*registered, *own_builds()])),
        validate_url=urls.VALIDATE,
        submit_url=urls.SUBMIT,
    )


def add(
    router: APIRouter,
    *,
    page: Callable[[Request, str, Any], Response],
    twin: Callable[[Request, Any], Response],
    reading: Callable[[], AbstractContextManager[Session]],
) -> None:
    """Adds the routes, which only read. Before those of single jobs: "new" is no job's id."""

    def read(request: Request) -> FormView:
        with reading() as session:
            return new_job(session, request.query_params)

    @router.get(f"{urls.NEW_JOB}.json")
    def new_twin(request: Request) -> Response:
        return twin(request, read(request))

    @router.get(urls.NEW_JOB)
    def new_page(request: Request) -> Response:
        return page(request, "new_job.html", read(request))
