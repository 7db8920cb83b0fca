"""A service that takes deliveries, with a small suite; what works them off; and what a test looks
at afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copyfile
from typing import Any

from pydantic import SecretStr

from api import Api, in_process
from gonogo_service.background.deliver import Deliver
from gonogo_service.ci.model import IncomingDeliveryRow
from gonogo_service.ci.processor import Paths, Processor
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.base import Base
from hook_payloads import SECRET, deliver
from patience import WAIT_S
from suite_runs import SUITE

CI_SECRET = "whsec_" + "Zm9yIHRoZSBvdGhlciBDSSBzeXN0ZW1zIGluIHRlc3Rz"
SMALL = {**SUITE, "entries": SUITE["entries"][:1]}
RULE: dict[str, Any] = {
    "name": "kernels",
    "events": ["push", "pull_request", "check_suite", "commit"],
    "repositories": ["lab/*"],
    "suites": ["nightly"],
    "builds": {"head": "tt-train-2025", "base": "correct"},
    "labels": {"team": "kernels"},
}
SETTINGS: dict[str, Any] = {
    "github_webhook_secret": SecretStr(f"{SECRET},the secret that comes next"),
    "ci_webhook_secret": SecretStr(CI_SECRET),
}


@contextmanager
def prepared(url: str, /, **changes: Any) -> Iterator[Api]:
    with in_process(url, **{**SETTINGS, **changes}) as api:
        assert api.client.post("/api/v1/suites", json=SMALL).is_success
        yield api


def store_rule(api: Api, **changes: Any) -> None:
    answer = api.client.post("/api/v1/rules", json={**RULE, **changes})
    assert answer.is_success, answer.text


@contextmanager
def background(api: Api, **changes: Any) -> Iterator[BackgroundContext]:
    """The background's context on a service's database; nothing asks the broker."""
    keys = {"broker_url": "redis://127.0.0.1:1/0", **changes}
    settings = api.settings.model_copy(update=keys)
    with closing(open_background_context(settings, threading.Event())) as core:
        yield core


def work(api: Api, paths: Paths | None = None) -> int:
    """Handle the due deliveries; return how many of them started something."""
    before = _started(api)
    with background(api) as core:
        loop = Deliver(core, {IncomingDeliveryRow: Processor(core, paths).handle})
        loop.run_once()
        loop.join(WAIT_S)
    return _started(api) - before


def handled(api: Api, event: str, payload: Any, **options: Any) -> int:
    """Deliver an event and do what is due; return how many deliveries started something."""
    assert deliver(api.client, event, payload, **options).status_code == 202
    return work(api)


def _started(api: Api) -> int:
    return sum(delivery["state"] == "started" for delivery in came(api))


def came(api: Api) -> list[dict[str, Any]]:
    return list(reversed(api.get("/hooks/deliveries?limit=500")["items"]))


def commit_checks(api: Api) -> list[dict[str, Any]]:
    return list(reversed(api.get("/hooks/commit_checks")["items"]))


@contextmanager
def copied(template: Path, folder: Path, **changes: Any) -> Iterator[Api]:
    """One service for many tests, on a copy of a migrated file: to make one takes longer than most
    of the tests."""
    file = folder / "gonogo.sqlite"
    copyfile(template, file)
    with prepared(f"sqlite:///{file}", **changes) as api:
        yield api


def emptied(api: Api) -> Api:
    """The same, with nothing in it but the suite."""
    with api.context.session() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
    assert api.client.post("/api/v1/suites", json=SMALL).is_success
    return api
