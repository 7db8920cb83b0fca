"""The page that submits a job, as the server makes it: filled from its address, with builds and executors to choose from."""

from __future__ import annotations

from api import Api, in_process

from gonogo.kernels import KERNELS
from storage import builds

STRANGE = "\"'><script>alert(1)</script>"


def text(api: Api, **query: str) -> str:
    """The page for an address."""
    answer = api.client.get("/jobs/new", params=query)
    assert answer.status_code == 200
    return answer.text


def test_the_form_begins_with_what_the_address_says(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        shown = text(api, kernel="rmsnorm_fw", shape="7, 9", policy="sequential")
        assert '<option value="rmsnorm_fw" selected>' in shown
        assert '<option value="sequential" selected>' in shown
        assert 'value="7, 9"' in shown
        twin = api.client.get("/jobs/new.json", params={"shape": "7, 9", "nothing": "1"}).json()
        assert (twin["values"]["shape"], twin["values"]["count"]) == ("7, 9", "8")
        assert "nothing" not in twin["values"]
        assert set(twin["kernels"]) == set(KERNELS)


def test_what_an_address_holds_stays_text(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        names = api.client.get("/jobs/new.json").json()["values"]
        shown = text(api, **dict.fromkeys(names, STRANGE))
        assert shown.count("&lt;script&gt;alert(1)") == len(names)
        assert "<script>alert" not in shown
        assert len(text(api, build="x" * 9_000)) < len(text(api)) + 3_000


def test_registered_builds_come_first_and_what_the_form_begins_with_is_a_job(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        with api.context.session() as session:
            builds.add(session, name="main-0001", executor="ttnn", line="main", sequence=1, commit=None, profile=None, outputs=None)
        twin = api.client.get("/jobs/new.json").json()
        assert twin["builds"][0] == "main-0001"
        assert "ttnn" in twin["executors"]
        values = twin["values"]
        job = {
            "test": {"kernel": values["kernel"], "shape": [int(each) for each in values["shape"].split(",")]},
            "build": values["build"],
            "target": {name: values[name] for name in ("executor", "arch", "board")},
            "seeds": {"start": int(values["start"]), "count": int(values["count"])},
            "repeats": int(values["repeats"]),
            "priority": int(values["priority"]),
        }
        assert api.client.post(twin["validate_url"], json=job).status_code == 200
        assert api.client.post(twin["submit_url"], json=job).status_code == 202
