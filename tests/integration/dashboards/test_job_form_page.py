"""The page that submits a job: filled from its address, a job or a test, with builds to choose.

tests/browser/test_job_form.py sends what it shows.
"""

from __future__ import annotations

from typing import Any

import pytest

from api import Api
from gonogo import urls
from gonogo.kernels.registry import KERNELS
from gonogo_service.builds import store as builds

STRANGE = "\"'><script>alert(1)</script>"


def twin(api: Api, **query: str) -> dict[str, Any]:
    view: dict[str, Any] = api.client.get("/jobs/new.json", params=query).json()
    return view


def text(api: Api, **query: str) -> str:
    answer = api.client.get("/jobs/new", params=query)
    assert answer.status_code == 200
    return answer.text


def test_the_form_begins_with_what_the_address_says_and_it_stays_text(api: Api) -> None:
    shown = text(api, kernel="rmsnorm_fw", shape="7, 9", policy="sequential")
    assert '<option value="rmsnorm_fw" selected>' in shown
    assert '<option value="sequential" selected>' in shown
    view = twin(api, shape="7, 9", nothing="1")
    assert (view["values"]["shape"], view["values"]["count"]) == ("7, 9", "8")
    assert "nothing" not in view["values"]
    assert set(view["kernels"]) == set(KERNELS)
    hostile = text(api, **dict.fromkeys(view["values"], STRANGE))
    assert hostile.count("&lt;script&gt;alert(1)") == len(view["values"])
    assert "<script>alert" not in hostile
    assert len(text(api, build="x" * 9_000)) < len(text(api)) + 3_000


def test_registered_builds_come_first_and_what_the_form_begins_with_is_a_job(api: Api) -> None:
    with api.context.session() as session:
        builds.add(session, name="main-0001", executor="ttnn", branch="main", sequence=1)
    view = twin(api)
    first, *others = view["builds"]
    assert (first["name"], first["about"], first["executor"]) == ("main-0001", "ttnn, main", "ttnn")
    (mutant,) = (build for build in others if build["name"] == "double-subtract")
    assert (mutant["about"], mutant["kernels"]) == ("s1 is subtracted twice.", ["layernorm_bw"])
    values = view["values"]
    shape = [int(dimension) for dimension in values["shape"].split(",")]
    job = {
        "test": {"kernel": values["kernel"], "shape": shape},
        "build": values["build"],
        "target": {name: values[name] for name in ("executor", "arch", "board")},
        "seeds": {name: int(values[name]) for name in ("start", "count")},
    }
    assert api.client.post(urls.SUBMIT, json=job).status_code == 202


def test_formats_have_fields_and_only_the_map_of_tensors_is_json(api: Api) -> None:
    test = {"kernel": "layernorm_bw", "shape": [32, 64], "tolerance": {"atol": 0.5}}
    one = {"input": "fp32", "output": "fp32", "accumulate": "bf16", "fidelity": "hifi2"}
    several = {"input": {"gamma": "fp32"}, "layout": "row_major"}
    for numerics, rest in ((one, ""), (several, '{"numerics":{"input":{"gamma":"fp32"}}}')):
        job = api.submit(test={**test, "numerics": numerics})
        values = twin(api, **{"from": job})["values"]
        fields = {name: value for name, value in numerics.items() if isinstance(value, str)}
        assert {name: values[name] for name in fields} == fields
        assert values["rest"] == rest


def test_the_form_begins_as_a_job_or_a_test_did(api: Api) -> None:
    job = api.submit(labels={"team": STRANGE}, priority=7)
    assert twin(api, **{"from": job, "priority": "9"})["values"]["priority"] == "9"
    page = text(api, **{"from": job})
    assert "<script>alert" not in page
    assert f'<a href="/jobs/{job}">the job</a>' in page
    assert f"/jobs/new?from={job}" in api.client.get(f"/jobs/{job}").text
    of_test = twin(api, test=api.get(f"/jobs/{job}")["test_key"])["values"]
    assert (of_test["shape"], of_test["policy"], of_test["count"]) == ("1, 1, 32, 64", "range", "8")
    rate = api.submit(seeds={"policy": "sequential", "max": 40, "stop_on_finding": False})
    assert twin(api, **{"from": rate})["values"]["policy"] == "rate"
    with api.context.session() as session:
        builds.add(session, name="suites-1", executor="pytest", branch="suites", sequence=1)
    chosen = {"suite": "nightly", "filter": "a and not b", "stages": ["one", "two"]}
    body = {"test": {"selection": chosen}, "build": "suites-1", "target": {"executor": "pytest"}}
    view = twin(api, **{"from": api.submit(**body)})
    named = {name: view["values"][name] for name in ("kind", "suite", "filter", "stages")}
    assert named == {"kind": "selection", **chosen, "stages": "one, two"}
    assert view["suites"] == ["nightly"]


@pytest.mark.parametrize("name", ["from", "test"])
def test_the_page_says_that_a_job_or_a_test_is_missing(api: Api, name: str) -> None:
    shown = text(api, **{name: STRANGE})
    assert "The form has its default values" in shown
    assert "<script>alert" not in shown
