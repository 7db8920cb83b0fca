"""A database that has something to show on every page, ordinary and hostile: long names, right to
left, markup; and where it is shown.

`fill` makes it by the functions and the API that the service uses. `House.addresses` names for each
page of the pages' router the addresses to look at; a page without a name in its path needs no
entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

import bisection_steps
import compared_builds
import gauge_results
import nightly_history
import stored_jobs
import stored_webhooks
from api import Api
from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.test_spec import TestSpec
from gonogo_dashboards.pages import make_routes
from gonogo_service.builds import store as builds
from gonogo_service.ci import answers, commit_checks, incoming
from gonogo_service.ci.model import AnswerRow, IncomingDeliveryRow
from gonogo_service.devices import heartbeats
from gonogo_service.devices import store as devices
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.hosts import refused_requests
from gonogo_service.hosts.model import HostRow
from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import DeliveryState, HookSource, IncomingState
from gonogo_service.suites import runs
from gonogo_service.webhooks import store as webhooks
from stored_histories import row, world
from suite_runs import SUITE, conclude, finish

HOSTILE = "<img src=x onerror=alert(1)>\"'</script><script>alert(2)</script>{{7*7}}\u202egnp.exe"
RIGHT_TO_LEFT = "اختبار الليل " * 4 + "בדיקת לילה"
LONG = "a-very-long-name-" * 11
TESTED: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
NOT_PAGES = {
    f"{urls.STATIC}/{{name}}",
    "/favicon.ico",
    urls.MANUAL,
    f"{urls.MANUAL}/{{name:path}}",  # a site of its own, which tests/docs looks at
}


FLICKERED = 7e-5
"""The epsilon of a test that was flaky on an older build only."""


@dataclass
class House:
    """The paths of pages that have something to show, by the path of the route."""

    addresses: dict[str, list[str]] = field(default_factory=dict)
    hostile: set[str] = field(default_factory=set)
    """Pages whose text holds HOSTILE."""

    def show(self, route: str, *paths: str, hostile: bool = False) -> None:
        """Pages of a route to be looked at."""
        self.addresses.setdefault(route, []).extend(paths)
        if hostile:
            self.hostile.update(paths)


def routes(context: Any) -> tuple[dict[str, str], list[str]]:
    """Return each page's path with that of its JSON version, and the pages that have none."""
    addresses = {route.path for route in make_routes(context)} - NOT_PAGES
    pages = sorted(path for path in addresses if not path.endswith((".json", ".csv", ".svg")))
    twins = {path: f"{path}.json" for path in pages} | {urls.OVERVIEW: urls.overview(as_json=True)}
    alone = [path for path in pages if twins[path] not in addresses]
    return {path: twin for path, twin in twins.items() if twin in addresses}, alone


def fill(api: Api) -> House:
    """Everything, in a second or two."""
    house = House()
    _gauge(house, api)  # first: it plays whatever waits
    with api.context.session() as session:
        _jobs(house, session)
        _history(house, session)
        _machines(house, session)
        _messages(house, session)
    _suites(house, api)
    _bisections(house, api)
    with world(str(api.settings.database_url)) as here:
        here.assess()
    with api.context.session() as session:
        _flags(house, session)
    return house


def _jobs(house: House, session: Session) -> None:
    wrong = stored_jobs.finished(
        session, labels={"suite": LONG, RIGHT_TO_LEFT: RIGHT_TO_LEFT}, owner=RIGHT_TO_LEFT
    )
    right = stored_jobs.finished(session, wrong=False, seeds=1)
    waiting = stored_jobs.submit(session, seeds=300)
    labels = {"suite": HOSTILE, HOSTILE: LONG}
    evil = stored_jobs.submit(session, build=HOSTILE, labels=labels, owner=HOSTILE, seeds=9)
    rows = [stored_jobs.row(seed, wrong=True) for seed in range(7)]
    rows += [stored_jobs.unwell(7, "error", HOSTILE), stored_jobs.unwell(8, "hang", LONG)]
    stored_jobs.report(session, evil.id, rows)
    stored_jobs.finish(session, evil.id)
    house.show("/jobs/{job_id}", *(urls.job(job.id) for job in (wrong, right, waiting)))
    house.show("/jobs/{job_id}", urls.job(evil.id), hostile=True)
    house.show(urls.JOBS, urls.JOBS, hostile=True)
    house.show(urls.JOBS, urls.jobs({"state": "failed"}), urls.jobs({"build": HOSTILE}))
    house.show(urls.NEW_JOB, urls.NEW_JOB)


def _history(house: House, session: Session) -> None:
    masked = nightly_history.masked(session)
    jobs_by_name = compared_builds.history(session)
    for name, sequence, model in (("b747edd158", 2, "bf16"), ("fixed-4c1e", 4, HOSTILE)):
        fields: dict[str, Any] = {"executor": "ttnn", "branch": "main", "arithmetic": model}
        builds.add(session, name=name, sequence=sequence, **fields)
    flickered = {**stored_jobs.NIGHTLY, "epsilon": FLICKERED}
    nightly_history.night(session, "b747edd158", 2, range(24), test=flickered, red=range(12))
    nightly_history.night(session, "fixed-4c1e", 4, range(24), test=flickered)
    context = {"name": HOSTILE, "before": [TESTED]}
    how: dict[str, Any] = {"wrong": True, "diagnosed": True, "device": HOSTILE, "context": context}
    evil = nightly_history.night(session, HOSTILE, 9, range(5), **how)
    selection = next(job for job in _all(session) if job.kernel == "selection")
    house.show("/jobs/{job_id}", urls.job(selection.id))
    evil_build = urls.history(masked, {"branch": "main", "build": HOSTILE})
    house.show("/tests/{name}", evil_build, hostile=True)
    running = jobs_by_name["open"]
    assert running is not None
    house.show("/tests/{name}", *(urls.history(job.test_key) for job in (selection, running)))
    house.show("/jobs/{job_id}", urls.job(evil.id), hostile=True)
    house.show(urls.MATRIX, urls.matrix({"branch": "main"}), hostile=True)
    house.show(urls.BRANCH, urls.branch({"head": HOSTILE}), hostile=True)
    house.show(urls.BRANCH, urls.BRANCH, urls.branch({"head": compared_builds.HEAD}))
    house.show(urls.COMPARE, urls.compare(compared_builds.BASE, HOSTILE), hostile=True)
    pages = urls.COMPARE, urls.compare(None, compared_builds.HEAD)
    house.show(urls.COMPARE, *pages, urls.compare(compared_builds.BASE, compared_builds.HEAD))


def _all(session: Session) -> list[JobRow]:
    return JOBS.page(session, limit=200).items


def _machines(house: House, session: Session) -> None:
    session.add(HostRow(id=new_id(), name=HOSTILE, queues=[HOSTILE], created_at=utcnow()))
    refused_requests.record(session, HOSTILE, "sender", HOSTILE, now=utcnow())
    stored_jobs.fleet(session, stored_jobs.submit(session))
    stored_jobs.fleet(session, stored_jobs.submit(session), host=HOSTILE, reason=HOSTILE)
    stored_jobs.fleet(session, stored_jobs.submit(session), host=LONG, reason=RIGHT_TO_LEFT)
    firmware = {"fw_bundle_version": HOSTILE}
    flashed = stored_jobs.facts_of(HOSTILE, "wormhole:3", firmware=firmware)
    heartbeats.heard(session, flashed, worker="w", attempt=None, now=utcnow())
    for device in devices.list_(session, now=utcnow()):
        if device.name == "wormhole:3":
            page = urls.device(device.id)
            house.show("/devices/{device_id}", page, hostile=device.host == HOSTILE)
    house.show(urls.DEVICES, urls.DEVICES, hostile=True)


def _messages(house: House, session: Session) -> None:
    fields: dict[str, Any] = {"kind": "standard", "events": ["job.finished"], "secret": None}
    fields["actor"] = HOSTILE
    hook = webhooks.create(session, url=f"https://ci.example/{LONG}", description=HOSTILE, **fields)
    other = {**fields, "url": "https://ci.example/", "description": RIGHT_TO_LEFT}
    webhooks.disable(session, webhooks.create(session, **other).id, HOSTILE)
    for state in (DeliveryState.failed, DeliveryState.delivered, DeliveryState.waiting):
        payload = {"type": "job.finished", "data": {"words": HOSTILE, "long": LONG}}
        result = {"payload": payload, "answer": f"{HOSTILE} is broken"}
        newest = stored_webhooks.store_tried(session, hook.id, state, **result)
    delivery = urls.webhook_delivery(hook.id, newest)
    house.show("/webhooks/{webhook_id}/deliveries/{delivery_id}", delivery, hostile=True)
    house.show("/webhooks/{webhook_id}", urls.webhook(hook.id), hostile=True)
    house.show(urls.WEBHOOKS, urls.WEBHOOKS, hostile=True)
    body = json.dumps({"words": HOSTILE, "long": LONG}).encode()
    came, _ = incoming.store(session, HookSource.ci, LONG, "push", body)
    house.show("/hooks/{incoming_id}", urls.hook(came))


def _suites(house: House, api: Api) -> None:
    suite = {**SUITE, "description": HOSTILE}
    assert api.client.post("/api/v1/suites", json=suite).status_code == 201
    times = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    line = {"name": LONG[:64], "suite": SUITE["name"], "builds": ["correct"], **times}
    schedule = api.client.post("/api/v1/schedules", json={**line, "labels": {"by": LONG}})
    assert schedule.status_code == 201, schedule.text
    run = api.client.post(f"/api/v1/schedules/{schedule.json()['id']}:run-now").json()
    body = {"suite": suite, "builds": ["tt-train-2025"], "labels": {"by": HOSTILE, "long": LONG}}
    more = api.client.post("/api/v1/runs", json=body).json()
    with api.context.session() as session:
        for member in runs.members(session, more["id"]):
            finish(session, member.id, wrong=True)
        conclude(session)
        _answers(session, more["id"], run["id"])
    house.show("/runs/{run_id}", urls.run(run["id"]), urls.run(more["id"]))
    house.show(urls.ANSWERS, urls.ANSWERS, hostile=True)


def _answers(session: Session, run: str, base_run: str) -> None:
    """Store what a pull request's delivery leaves behind, and the answers to GitHub."""
    now = utcnow()
    for number, rule in enumerate((HOSTILE, LONG, RIGHT_TO_LEFT)):
        delivery = IncomingDeliveryRow(
            id=new_id(),
            key=new_id(),
            delivery=new_id(),
            source="github",
            topic="pull_request",
            repository=f"lab/{HOSTILE}",
            size=1,
            body=None,
            payload={},
            state=IncomingState.started.value,
            reason=HOSTILE,
            outcome=[],
            tries=1,
            due_at=None,
            created_at=now,
            ended_at=now,
        )
        session.add(delivery)
        session.flush()
        facts = {
            "delivery": delivery.id,
            "source": "github",
            "event": "pull_request",
            "repository": f"lab/{HOSTILE}",
            "branch": LONG,
            "pull_request": number,
            "head_sha": "b2" * 20,
            "base_sha": "a1" * 20,
            "head_build": HOSTILE,
            "rule": rule,
            "suite": SUITE["name"],
            "run": run,
            "base_run": base_run,
            "installation": None,
            "base_build": None,
            "error": None,
            "fork": False,
            "occurred_at": now,
        }
        check = commit_checks.add(session, facts)
        answers.add(session, check.id)
    answered = AnswerRow.locked(session, check.id)
    assert answered is not None
    for _ in range(9):  # then it is given up
        answered.postpone(HOSTILE)


def _gauge(house: House, api: Api) -> None:
    for test in (gauge_results.TEST, TESTED):  # the second one waits
        answer = api.client.post("/api/v1/gauges", json={"test": test, "seeds": {"count": 2}})
        assert answer.status_code == 202, answer.text
        house.show("/gauges/{gauge_id}", urls.gauge(answer.json()["id"]))
        if test is gauge_results.TEST:
            missed = dict.fromkeys(("double-subtract", "drop-s1"), gauge_results.PASSES)
            with api.context.session() as session:
                list(gauge_results.played(session, missed))
    house.show("/tests/{name}", urls.history(TestSpec.parse(gauge_results.TEST).key))


def _bisections(house: House, api: Api) -> None:
    def begin(**more: Any) -> str:
        body = {"test": TESTED, "builds": ["correct"] * 16, **more}
        created = api.client.post("/api/v1/bisections", json=body)
        assert created.status_code == 202, created.text
        return str(created.json()["id"])

    over, running = begin(labels={"why": HOSTILE}), begin()
    bisection_steps.run(api, over, lambda place, seed: row(seed, wrong=place >= 11))
    bisection_steps.step(api, running)
    house.show("/bisections/{bisection_id}", urls.bisection(over), urls.bisection(running))


def _flags(house: House, session: Session) -> None:
    """One flag of every kind that is there by now, and a hostile one that someone took on."""
    evil = next(job for job in _all(session) if job.build == HOSTILE)
    place = {"arch": evil.target.arch, "board": evil.target.board}
    evidence = {"words": HOSTILE, "sentence": HOSTILE}
    finding = FlagRow.finding(FlagKind.hangs, evil, evidence, **place)
    flag_id, _ = flags.upsert(session, finding, now=utcnow())
    kinds: dict[str, str] = {}
    for flag in FLAGS.page(session, limit=200).items:
        kinds.setdefault(flag.kind, flag.id)
    for kind in (FlagKind.fix_masked, FlagKind.blunt_test):
        house.show("/flags/{name}", urls.flag(kinds[kind]))
    house.show("/flags/{name}", urls.flag(str(flag_id.id)), hostile=True)
    house.show(urls.FLAGS, urls.FLAGS, urls.flags({"kind": "hangs", "state": "resolved"}))
    house.show(urls.OVERVIEW, urls.OVERVIEW, hostile=True)
    house.show(urls.NEW_BISECTION, urls.form(urls.NEW_BISECTION, {"test": HOSTILE, "first": LONG}))
    house.show(urls.WORSE, urls.worse({"since": "2020-01-01"}))
    house.show(urls.SEARCH, urls.search(HOSTILE), urls.search("b"))
