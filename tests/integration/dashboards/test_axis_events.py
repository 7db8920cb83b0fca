"""Changes of ttnn, firmware, arithmetic and tolerance are marked on every time axis, on both
databases."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import bisection_steps
import device_month
import nightly_history
import stored_jobs
from api import JOB, Api
from gonogo import urls
from gonogo_dashboards.kit import axis_events
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.builds import store as builds
from gonogo_service.devices import heartbeats
from gonogo_service.devices import store as devices
from gonogo_service.jobs.model import AttemptRow, ChunkRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from stored_histories import row

OTHER = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.02}}


def kinds(events: Any) -> list[tuple[str, str]]:
    """The kind and the place of each event."""
    return [(event["kind"], event["name"]) for event in events]


def ran_with(session: Session, job: str, firmware: str) -> None:
    """Store an attempt of a job that has ended, on a device with this firmware."""
    chunk = session.scalars(select(ChunkRow.id).where(ChunkRow.job_id == job)).first()
    session.add(
        AttemptRow(
            id=new_id(),
            chunk_id=chunk,
            job_id=job,
            number=9,
            state="done",
            queue="q",
            work=[],
            batches={},
            telemetry={"firmware": firmware},
            created_at=utcnow(),
        )
    )


def test_every_time_axis_marks_what_changed(api: Api) -> None:
    now = utcnow()
    facts = {**device_month.FACTS, "firmware": {"fw_bundle_version": "19.0.0.0"}}
    with api.context.session() as current:
        device_month.heard(current, now - timedelta(days=2))
        for minutes in (0, 1):  # reported with each heartbeat, noted once
            at = now - timedelta(hours=3) + timedelta(minutes=minutes)
            heartbeats.heard(current, facts, worker="w", attempt=None, now=at)
        (device,) = devices.list_(current, now=now)
        for number, model in enumerate(("bf16", "bf16", "fp32", None), start=1):
            build = builds.add(
                current,
                name=f"b{number}",
                executor="ttnn",
                branch="main",
                sequence=number,
                arithmetic=model,
            )
            build.created_at = now - timedelta(days=1, hours=number)
            test = stored_jobs.NIGHTLY if number != 2 else OTHER
            nightly_history.night(current, f"b{number}", number, range(3), test=test)
            job = nightly_history.night(current, f"b{number}", number, range(3))
            ran_with(current, job.id, "18" if number < 4 else "19")

    def look(url: str) -> Any:
        return api.client.get(url).json()

    key = job.test_key
    test = look(urls.history(key, as_json=True))
    builds_axis = [("tolerance", "b2"), ("arithmetic", "b3"), ("firmware", "b4")]
    assert sorted(kinds(test["strip"]["events"])) == sorted(builds_axis)
    assert sorted(kinds(test["curve"]["events"])) == sorted(builds_axis)
    assert "atol 0.02" in test["strip"]["events"][0]["words"]
    assert '"xAxis":0.5' in api.client.get(urls.history(key)).text, "it stands before b2"
    (changed,) = (event for event in test["curve"]["events"] if event["kind"] == "arithmetic")
    assert (changed["place"], changed["label"]) == (2, "arithmetic")
    assert changed["words"] == "arithmetic bf16 until here, fp32 from here on"
    matrix = look(urls.matrix({"branch": "main"}, as_json=True))["events"]
    assert kinds(matrix) == [("firmware", "b4"), ("arithmetic", "b3"), ("tolerance", "b2")]
    assert "another test of layernorm_bw from here on: rtol" in matrix[-1]["words"]
    page = look(urls.device(device.id, as_json=True))
    assert [event["kind"] for event in page["events"]] == [
        *["build"] * 2,
        "arithmetic",
        "build",
        "build",
        "firmware",
    ]
    (firmware,) = (event for event in page["events"] if event["kind"] == "firmware")
    assert "18.3.0.0 until here, 19.0.0.0 from here on" in firmware["words"]
    assert firmware["place"] == int((now - timedelta(hours=3)).timestamp() * 1000)
    assert {span["state"] for span in page["timeline"]["spans"]} == {"good", "offline"}
    assert {entry["what"] for entry in page["history"]} == {"health", "firmware"}
    assert {event["kind"] for event in page["day_events"]} == {
        "build",
        "arithmetic",
        "firmware",
    }
    overview = look(urls.overview(as_json=True))
    assert {event["kind"] for event in overview["day_events"]} == {
        "build",
        "arithmetic",
        "firmware",
        "tolerance",
    }
    hollow = next(line for line in overview["numbers"] if line["name"] == "hollow")
    assert any(bar["event"] and "firmware" in bar["words"] for bar in hollow["bars"])
    (line,) = (line for line in look(urls.catalogue(as_json=True))["items"] if line["key"] == key)
    marked = [cell["build"] for cell in line["recent"]["cells"] if cell["event"]]
    assert marked == ["b2", "b3", "b4"], "a strip marks what the charts of its test mark"
    events = [cell["event"] for cell in line["recent"]["cells"]]
    assert events[0] == ""
    assert events[1].startswith("another test of this workload from here on: rtol")
    assert events[2:] == [
        "arithmetic bf16 until here, fp32 from here on",
        "firmware 18 until here, 19 from here on",
    ]
    assert line["recent"]["words"].endswith(
        "; at b2: other tolerance; at b3: other arithmetic; at b4: other firmware"
    )
    assert '<path class="event"' in api.client.get(urls.catalogue()).text
    for url in (urls.OVERVIEW, urls.device(device.id)):
        assert '<ul class="events small">' in api.client.get(url).text
    numbered = api.client.get(urls.history(key)).text
    assert re.findall(r'<li value="(\d)"><bdi>(\w+)', numbered) == [
        *[("1", "b2"), ("2", "b3"), ("3", "b4")] * 2
    ], "the numbers above the lines of both charts"


def test_nightly_builds_of_ttnn_are_no_changes_each() -> None:
    now = utcnow()
    nights = [
        axis_events.DatedAnnotation(now - timedelta(days=day), "build", "main", None, f"b{day}")
        for day in range(axis_events.MAX_NEW_BUILDS + 1)
    ]
    assert axis_events.of_time(nights, now) == ()
    assert len(axis_events.of_time(nights[1:], now)) == axis_events.MAX_NEW_BUILDS


def test_a_bisection_marks_the_firmware_that_its_runs_had(api: Api) -> None:
    created = api.client.post(
        "/api/v1/bisections", json={"test": JOB["test"], "builds": ["correct"] * 16}
    )
    assert created.status_code == 202, created.text
    name = str(created.json()["id"])
    bisection_steps.run(api, name, lambda place, seed: row(seed, wrong=place >= 11))
    with api.context.session() as session:
        bisection = session.get(BisectionRow, name)
        assert bisection is not None
        for probe in bisection.probes:
            ran_with(session, probe.job, "18" if probe.place < 11 else "19")
    page = api.client.get(urls.bisection(name)).text
    assert "firmware 18 until here, 19 from here on" in page
