"""A gauge from the request to the report with a real worker: the numbers are those of `gonogo
gauge`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from api import on_port
from background_thread import running, short
from gonogo.gauge.tests_file import Entry
from gonogo.spec.test_spec import TestSpec
from gonogo_service.gauges.model import GaugeResultRow
from gonogo_workers.cli.gauge import gauged
from gonogo_workers.server.host_file import Host
from job_flow import joined
from patience import scaled
from running_service import until as eventually
from worker_process import HOST, Workplace

NIGHTLY: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 8, 1, 8462],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
"""The nightly test with fewer rows: its width and its tolerance are the same."""
BODY = {
    "test": NIGHTLY,
    "seeds": {"count": 1},
    "search": False,
    "target": {"executor": "troublesome"},
    "builds": ["fine"],
}
REDUCTIONS = ("last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025", "drop-s1")
PLUGIN = "troublesome=troublesome:Troublesome"


def test_atol_a_half_misses_every_fault_of_the_nightly_reductions(
    sqlite_url: str, redis_url: str, place: Workplace
) -> None:
    settings = short(sqlite_url, redis_url).model_copy(update={"heartbeat_timeout_s": scaled(30)})
    options = {"broker_url": redis_url, "secret_key": settings.secret_key, "executors": PLUGIN}
    with on_port(sqlite_url, **options) as (client, context):

        def get(path: str) -> Any:
            return client.get(f"/api/v1{path}").json()

        token = joined(context.engine, HOST)
        Host(str(client.base_url).rstrip("/"), HOST, token).save(place.folder)
        worker = place.start_unheard("emulator,troublesome", GONOGO_HEARTBEAT_S="0.2")
        path = f"/gauges/{client.post('/api/v1/gauges', json=BODY).json()['id']}"
        with running(settings):
            eventually(lambda: worker.poll() is not None or get(path)["state"] == "finished", 90)
        finished_gauge = get(path)
        with context.reading() as session:
            stored = session.scalar(select(func.count()).select_from(GaugeResultRow))
        # mutants, and the build that is right; no right kernel of a Wormhole
        assert stored == finished_gauge["total"] == 20 + 1
        (listed,) = get("/flags?kind=blunt_test")["items"]
        flag = get(f"/flags/{listed['id']}")
    report, parts = finished_gauge["report"], finished_gauge["report"]["misses"]["parts"]
    assert (finished_gauge["sharpness"], finished_gauge["error"]) == ("blunt", None)
    for name in REDUCTIONS:
        part = parts[name]
        assert (part["count"], part["of"], part["unexplained"]["count"]) == (1, 1, 1)
        assert name in flag["evidence"]["on_every_seed"]
    assert set(REDUCTIONS) <= set(report["gates"]["pcc-.999"]["missed"])
    assert report["false_alarms"]["count"] == 0
    assert report["false_alarms"]["parts"]["troublesome:fine"]["of"] == 1
    assert report["broken"] == {}
    assert report["sentences"]["drop-s1"] == "s1 is not subtracted at all."
    here, _ = gauged(
        Entry(name="nightly", test=TestSpec.parse(NIGHTLY), seeds=1), search=False, deadline=None
    )
    for name, rate in here.misses.parts.items():
        if name != "stale-register":  # it depends on the run before, which is another one here
            assert (parts[name]["count"], parts[name]["of"]) == (rate.count, rate.of), name
