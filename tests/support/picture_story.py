"""A database with one story for the pictures of the docs: eighteen nights of a suite in which a bug
is masked, found and fixed."""

from __future__ import annotations

import json
from datetime import timedelta

import time_machine

import bisection_steps
import device_month
import gauge_results
import nightly_history
import stored_jobs
import stored_webhooks
from api import Api
from gonogo import urls
from gonogo_service.ci import incoming
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import DeliveryState, HookSource
from gonogo_service.suites import runs
from gonogo_service.webhooks import store as webhooks
from stored_histories import row, world
from suite_runs import SUITE, conclude, finish

DAYS = 18
MASKED, FIXED = 6, 11
"""The night from which on the wrong kernel is green, and the one from which on it is right."""
SEEDS = 24
MISSED = ("double-subtract", "drop-s1", "last-block-only", "tt-train-2025")
"""Wrong kernels that the gauges' tests let pass."""
NEEDED = 0.02
"""The atol that right kernels of the nightly test may need: their errors here are .0133."""
# what else runs every night: its shape, its tolerance, from which night on its kernel is wrong, and
# how many seeds of eight are red
OTHERS = (
    ([1, 1, 32, 64], 0.5, DAYS, 0),
    ([8, 1, 128, 4096], 0.06, 11, 0),
    ([1, 1, 64, 384], 0.004, DAYS, 4),
    ([3, 1, 1, 1000], 0.5, 3, 4),
    ([1, 1, 33, 96], 0.25, 9, 1),
    ([2, 1, 256, 2048], 0.5, DAYS, 0),
    ([1, 1, 512, 512], 0.5, 17, 0),
)


def commit(night: int) -> str:
    return f"{0x9CA166977B * (night + 1) % 0xFFFFFFFFFF:010x}"


def fill(api: Api) -> dict[str, str]:
    """Everything; the page to look at by the name of its picture."""
    end = utcnow().replace(hour=5, minute=12, second=0) - timedelta(days=1)
    ids._last = 0  # the ids of what follows are of the past
    job: JobRow | None = None
    with time_machine.travel(end - timedelta(days=DAYS), tick=False) as clock:
        gauge = _gauge(api)
        for night in range(DAYS):
            clock.move_to(end - timedelta(days=DAYS - 1 - night))
            with api.context.session() as session:
                wrong = night < FIXED
                red = range(SEEDS) if night < MASKED else ()
                build, how = (commit(night), night + 1), {"wrong": wrong, "diagnosed": wrong}
                latest = nightly_history.night(session, *build, range(SEEDS), red=red, **how)
                job = latest if night == FIXED - 1 else job
                for shape, atol, since, outside in OTHERS:
                    tolerance = {"rtol": 1e-3, "atol": atol}
                    test = {**stored_jobs.NIGHTLY, "shape": shape, "tolerance": tolerance}
                    off = night >= since
                    seeds = range(8 * night, 8 * night + 8)
                    red = seeds[:outside] if off or since == DAYS else ()
                    how = {"wrong": off, "diagnosed": off}
                    nightly_history.night(session, *build, seeds, test=test, red=red, **how)
        run, webhook = _settings(api)
    assert job is not None
    with world(str(api.settings.database_url)) as here:
        here.assess()
    bisection = _bisection(api)
    with api.context.session() as session:
        stored_jobs.fleet(session, stored_jobs.submit(session, seeds=64))
        device_month.month(session, utcnow(), days=DAYS)
        running = stored_jobs.submit(session, seeds=48)
        rows = [stored_jobs.row(seed, wrong=False) for seed in range(29)]
        stored_jobs.report(session, running.id, rows)
    flag = api.client.get("/flags.json").json()["items"][0]["id"]
    devices = api.get("/devices")["items"]
    return {
        "overview": urls.overview(),
        "tests": urls.catalogue(),
        "flag": urls.flag(flag),
        "worse": urls.worse({"since": (end - timedelta(days=12)).date().isoformat()}),
        "test": urls.history(job.test_key, {"branch": "main"}),
        "job": urls.job(job.id),
        "matrix": urls.matrix({"branch": "main"}),
        "flags": urls.flags(),
        "gauge": urls.gauge(gauge),
        "tolerances": urls.tolerances(),
        "bisection": urls.bisection(bisection),
        "compare": urls.compare(commit(15), commit(17)),
        "devices": urls.devices(),
        "device": urls.device(
            next(device["id"] for device in devices if device["host"] == device_month.HOST)
        ),
        "jobs": urls.jobs(),
        "submit": urls.new_job({"from": running.id}),
        "runs": urls.runs(),
        "run": urls.run(run),
        "webhooks": urls.webhooks(),
        "webhook": urls.webhook(webhook),
        "hooks": urls.hooks(),
        "rules": urls.rules(),
        "builds": urls.COMPARE,
        "search": urls.search("layer"),
        "gauge-form": urls.form(urls.NEW_GAUGE, {"test": job.test_key, "branch": "main"}),
    }


def _settings(api: Api) -> tuple[str, str]:
    """Set up a suite with a run, a rule and a webhook; return the ids of run and webhook."""
    assert api.client.post("/api/v1/suites", json=SUITE).status_code == 201
    run = api.client.post("/api/v1/runs", json={"suite": SUITE["name"]}).json()["id"]
    rule = {"name": "pull-requests", "events": ["pull_request"], "repositories": ["acme/kernels"]}
    rule |= {"branches": ["main"], "suites": [SUITE["name"]]}
    answer = api.client.post("/api/v1/rules", json=rule)
    assert answer.status_code in (200, 201), answer.text
    with api.context.session() as session:
        for member in runs.members(session, run):
            finish(session, member.id)
        conclude(session)
        fields = {"kind": "standard", "secret": None, "actor": "ada", "description": "CI"}
        events = ["run.finished", "flag.opened"]
        hook = webhooks.create(session, url="https://ci.example/gonogo", events=events, **fields)
        payload = {"type": "run.finished", "data": {"run": run}}
        for status in (200, 500, 200):
            state = DeliveryState.delivered if status == 200 else DeliveryState.failed
            result = {"status": status, "answer": "" if status == 200 else "broken"}
            stored_webhooks.store_tried(
                session, hook.id, state, type_="run.finished", payload=payload, **result
            )
        body = json.dumps({"ref": "refs/heads/main"}).encode()
        incoming.store(session, HookSource.ci, "acme-41", "push", body)
    return run, hook.id


def _gauge(api: Api) -> str:
    """Gauge a small test, and the nightly one, which misses more."""
    rows = []
    more = (*MISSED, "last-two-tiles", "unbiased-variance")
    for test, missed, edge in (
        (stored_jobs.NIGHTLY, more, NEEDED),
        (gauge_results.TEST, MISSED, gauge_results.EDGE),
    ):
        answer = api.client.post("/api/v1/gauges", json={"test": test, "seeds": {"count": 4}})
        assert answer.status_code == 202, answer.text
        rows.append(str(answer.json()["id"]))
        with api.context.session() as session:
            errors = dict.fromkeys(missed, gauge_results.PASSES)
            list(gauge_results.played(session, errors, edge=edge))
    return rows[-1]


def _bisection(api: Api) -> str:
    series = [commit(night) for night in range(DAYS)]
    for night, name in enumerate(series):
        build = {"name": name, "executor": "ttnn", "branch": "main", "sequence": night + 1}
        build["commit"] = f"{name}{'0' * 30}"
        created = api.client.post("/api/v1/builds", json=build)
        assert created.status_code in (200, 201), created.text
    body = {"test": stored_jobs.NIGHTLY, "builds": series[8:], "target": {"executor": "ttnn"}}
    begun = api.client.post("/api/v1/bisections", json=body)
    assert begun.status_code == 202, begun.text
    bisection_steps.run(
        api, begun.json()["id"], lambda place, seed: row(seed, wrong=place < FIXED - 8)
    )
    return str(begun.json()["id"])
