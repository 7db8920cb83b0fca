"""The slack of tests' tolerances: listed by the API and the page, and tightened by a patch."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nightly_history
import suite_runs
from api import Api, in_process
from gauge_results import EDGE, UNSEEN, played
from gonogo_service.suites import submission

LOOSE: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [8, 64],
    "tolerance": {"dx": {"rtol": 0.001, "atol": 0.5}},
}
OTHER = {**LOOSE, "shape": [16, 64]}
FILE = """\
name: nightly   # every night
builds: [correct]
defaults:
  seeds: {count: 2}
  test: {kernel: layernorm_bw, tolerance: {dx: {rtol: 0.001, atol: 0.5}}}
entries:
  # the small one was red on 3 May
  - name: small
    test:
      shape: [8, 64]   # tiles of 32
      tolerance:
        dx: {rtol: 1.0e-3, atol: 0.5}  # loose
  - {name: wide, test: {shape: [16, 64]}}
  - name: two
    test: {tolerance: {rtol: 0.1}}
    matrix: {shape: [[8, 128], [16, 128]]}
"""


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as api:
        yield api


def gauge(
    api: Api, test: dict[str, Any], *passing: str, error: float = 0.1, edge: float = EDGE
) -> None:
    """A gauge of a test ends; these mutants pass, with a fifth of the tolerance."""
    body = {"test": test, "seeds": {"count": 2}}
    assert api.client.post("/api/v1/gauges", json=body).status_code == 202
    with api.context.session() as session:
        list(played(session, dict.fromkeys(passing, error), edge=edge))


def ran(api: Api, test: dict[str, Any]) -> str:
    """A job of a test has passed; return the test's key."""
    with api.context.session() as session:
        return str(nightly_history.night(session, "a", 1, range(2), test=test).test_key)


def test_the_largest_slack_comes_first_and_what_nobody_knows_last(api: Api) -> None:
    gauged, seeds = ran(api, LOOSE), ran(api, OTHER)
    ulp = ran(api, {**LOOSE, "tolerance": {"ulp": 4}})
    gauge(api, LOOSE, "double-subtract", "drop-s1")
    by_key = {line["key"]: line for line in api.get("/tolerances")["items"]}
    assert list(by_key) == [gauged, seeds, ulp]
    line = by_key[gauged]
    (dx,) = line["outputs"]
    assert (line["source"], dx["output"], dx["comparator"]) == ("gauge", "dx", "allclose")
    assert line["slack"] == pytest.approx(0.5 / EDGE)
    assert dx["needed"] == pytest.approx(EDGE / 0.5)
    assert dx["passing"] == pytest.approx(0.1 / 0.5)
    assert dx["mutant"] in {"double-subtract", "drop-s1"}
    assert (line["passing_mutants"], line["mutants"]) == (2, 17)
    assert dx["needed"] <= dx["advised"] < dx["passing"]
    assert (by_key[seeds]["source"], by_key[seeds]["mutants"]) == ("seeds", None)
    assert by_key[seeds]["slack"] == pytest.approx(1 / by_key[seeds]["outputs"][0]["needed"])
    assert (by_key[ulp]["source"], by_key[ulp]["slack"]) == ("nothing", None)


def test_a_fault_that_passes_with_a_right_kernel_s_error_is_not_the_strongest(api: Api) -> None:
    ran(api, LOOSE)
    gauge(api, LOOSE, "drop-s1", error=UNSEEN)
    (line,) = api.get("/tolerances")["items"]
    assert line["passing_mutants"] == 1
    assert (line["outputs"][0]["passing"], line["outputs"][0]["mutant"]) == (None, None)


def test_a_list_goes_on_in_its_order_and_has_filters_and_csv(api: Api) -> None:
    keys = [ran(api, {**LOOSE, "shape": [rows, 64]}) for rows in (8, 16, 24)]
    gauge(api, {**LOOSE, "shape": [24, 64]})
    first = api.get("/tolerances?limit=2")
    rest = api.get(f"/tolerances?limit=2&cursor={first['next']}")
    listed = [line["key"] for line in (*first["items"], *rest["items"])]
    assert (sorted(listed), listed[0], rest["next"]) == (sorted(keys), keys[2], None)
    assert api.client.get("/api/v1/tolerances?cursor=x").status_code == 422
    assert [one["key"] for one in api.get("/tolerances?search=16x64")["items"]] == [keys[1]]
    assert api.get("/tolerances?kernel=softmax")["items"] == []
    assert api.get("/tolerances?suite=nightly")["items"] == []
    text = api.client.get("/api/v1/tolerances?format=csv").text
    assert text.startswith("key,kernel,test,source,gauge,job,slack,outputs,")


def stored(api: Api, content: dict[str, Any]) -> dict[str, str]:
    """Store a suite and run it; return its tests' keys by name."""
    answer = api.client.post("/api/v1/suites", json=content)
    assert answer.status_code in (200, 201), answer.text
    assert api.client.post("/api/v1/runs", json={"suite": content["name"]}).status_code == 202
    with api.context.session() as session:
        suite_runs.end_all(session)
    return {test["name"]: test["test_key"] for test in answer.json()["tests"]}


def patched(api: Api, *keys: str) -> dict[str, Any]:
    answer = api.client.post("/api/v1/tolerances:patch", json={"tests": keys})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def tolerances_in(api: Api, text: str) -> dict[str, Any]:
    """The canonical tolerance of each test of a suite's file, by name."""
    tests = submission.described(yaml.safe_load(text), api.settings)
    return {test.name: test.test.get("tolerance") for test in tests}


def test_a_patch_tightens_the_pushed_file_and_keeps_all_else(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "ci" / "nightly.yaml"
    file.parent.mkdir()
    file.write_text(FILE)
    content = yaml.safe_load(FILE) | {"file": {"path": "ci/nightly.yaml", "text": FILE}}
    keys = stored(api, content)
    for rows, width in ((8, 64), (16, 64)):
        gauge(api, {**LOOSE, "shape": [rows, width]})
    for rows, edge in ((8, 2 * EDGE), (16, EDGE)):
        gauge(api, {**LOOSE, "shape": [rows, 128], "tolerance": {"rtol": 0.1}}, edge=edge)
    answer = patched(api, *keys.values(), "nobody")
    (patch,) = answer["suites"]
    assert (patch["suite"], patch["path"], patch["note"]) == ("nightly", "ci/nightly.yaml", "")
    assert patch["tests"] == sorted(keys.values())
    assert answer["left_out"] == [{"test": "nobody", "reason": "no gauge advises a tolerance"}]
    advice = {line["key"]: line["outputs"][0]["advice"] for line in api.get("/tolerances")["items"]}
    before = tolerances_in(api, FILE)
    for command in (["git", "apply", "-"], ["patch", "-p1"]):
        file.write_text(FILE)
        subprocess.run(command, cwd=tmp_path, input=patch["diff"], text=True, check=True)
        after = tolerances_in(api, file.read_text())
        assert after.keys() == before.keys()
        loosest = {"two 16x128": "two 8x128"}  # of a matrix
        for name, tolerance in after.items():
            assert tolerance["dx"] == advice[keys[loosest.get(name, name)]], name
        lines = file.read_text().splitlines()
        assert "  # the small one was red on 3 May" in lines
        assert "      shape: [8, 64]   # tiles of 32" in lines
        assert lines[:5] == FILE.splitlines()[:5]


def test_a_patch_of_a_suite_whose_file_is_unknown_says_so(api: Api) -> None:
    keys = stored(api, yaml.safe_load(FILE))
    gauge(api, LOOSE)
    gauge(api, {**LOOSE, "shape": [8, 128], "tolerance": {"rtol": 0.1}})
    (patch,) = (answer := patched(api, keys["small"], keys["two 8x128"]))["suites"]
    assert (patch["path"], patch["tests"]) == ("nightly.yaml", [keys["small"]])
    assert "gonogo suites push" in patch["note"]
    (left,) = answer["left_out"]
    assert left["test"] == keys["two 8x128"]
    assert left["reason"].startswith("its entry makes 2 tests, which share a tolerance")
    alias = FILE.replace("[16, 64]", "*shape").replace("[8, 64]", "&shape [8, 64]")
    stored(api, yaml.safe_load(alias) | {"file": {"path": "a.yaml", "text": alias}})
    assert "aliases" in patched(api, keys["small"])["suites"][0]["note"]


def test_the_page_has_the_list_and_its_form_makes_the_patch(api: Api) -> None:
    keys = stored(api, yaml.safe_load(FILE))
    gauge(api, LOOSE, "drop-s1")
    page = api.client.get("/tolerances").text
    assert 'href="/tolerances"' in api.client.get("/").text, "the navigation leads to it"
    assert "50× loose" in page
    assert ">1 of 17</a>" in page
    assert "Not gauged" in page
    assert f'name="test" value="{keys["small"]}"' in page
    assert page.count('name="test"') == 1, "only a test with advice can be selected"
    lines = api.client.get("/tolerances.json").json()
    assert lines["items"] == api.get("/tolerances")["items"]
    assert lines["weeks"][-1]["median"] == pytest.approx(0.5 / EDGE)
    patch = api.client.get(f"/tolerances/patch?test={keys['small']}&test={keys['wide']}")
    assert "atol: 0.011" in patch.text
    assert "no gauge advises a tolerance" in patch.text
    assert "No test is selected" in api.client.get("/tolerances/patch").text
