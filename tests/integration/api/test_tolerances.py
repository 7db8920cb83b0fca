"""The slack of tests' tolerances: listed by the API and the page, and changed by a patch."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import select

import nightly_history
import suite_runs
from api import Api, refusal
from gauge_results import EDGE, UNSEEN, played
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.suites.submission import described
from records import pick

LOOSE: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [8, 64],
    "tolerance": {"dx": {"rtol": 0.001, "atol": 0.5}},
}
OTHER = {**LOOSE, "shape": [16, 64]}
SELECTION: dict[str, Any] = {
    "test": {"selection": {"suite": "nightly"}},
    "target": {"executor": "pytest"},
    "build": "main",
}
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
    assert (line["source"], *pick(dx, "output", "comparator")) == ("gauge", "dx", "allclose")
    assert line["slack"] == pytest.approx(0.5 / EDGE)
    assert dx["needed"] == pytest.approx(EDGE / 0.5)
    assert dx["passing"] == pytest.approx(0.1 / 0.5)
    assert dx["mutant"] in {"double-subtract", "drop-s1"}
    assert pick(line, "passing_mutants", "mutants") == (2, 17)
    assert dx["needed"] <= dx["advised"] < dx["passing"]
    assert pick(by_key[seeds], "source", "mutants") == ("seeds", None)
    assert by_key[seeds]["slack"] == pytest.approx(1 / by_key[seeds]["outputs"][0]["needed"])
    assert pick(by_key[ulp], "source", "slack") == ("nothing", None)
    # a fault that passes with a right kernel's error is not the strongest
    gauge(api, LOOSE, "drop-s1", error=UNSEEN)
    line = api.get("/tolerances")["items"][0]
    assert (line["key"], line["passing_mutants"]) == (gauged, 1)
    assert pick(line["outputs"][0], "passing", "mutant") == (None, None)


def test_a_list_goes_on_in_its_order_and_has_filters(api: Api) -> None:
    keys = [ran(api, {**LOOSE, "shape": [rows, 64]}) for rows in (8, 16, 24)]
    gauge(api, {**LOOSE, "shape": [24, 64]})
    first = api.get("/tolerances?limit=2")
    rest = api.get(f"/tolerances?limit=2&cursor={first['next']}")
    listed = [line["key"] for line in (*first["items"], *rest["items"])]
    assert (sorted(listed), listed[0], rest["next"]) == (sorted(keys), keys[2], None)
    assert [one["key"] for one in api.get("/tolerances?search=16x64")["items"]] == [keys[1]]
    assert api.get("/tolerances?kernel=softmax")["items"] == []
    assert api.get("/tolerances?suite=nightly")["items"] == []


def stored(api: Api, content: dict[str, Any], text: str = "", path: str = "a.yaml") -> Any:
    """Store a suite with its file, if any, and run it; return its tests' keys by name."""
    file = {"file": {"path": path, "text": text}} if text else {}
    answer = api.client.post("/api/v1/suites", json=content | file)
    assert answer.status_code in (200, 201), answer.text
    assert "file" not in answer.json()["content"]
    assert api.client.post("/api/v1/runs", json={"suite": content["name"]}).status_code == 202
    with api.context.session() as session:
        suite_runs.end_all(session)
    return {test["name"]: test["test_key"] for test in answer.json()["tests"]}


def patched(api: Api, *keys: str) -> dict[str, Any]:
    answer = api.client.post("/api/v1/tolerances:patch", json={"tests": keys})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def reasons(answer: dict[str, Any]) -> dict[str, str]:
    return {left["test"]: left["reason"] for left in answer["left_out"]}


def tolerances_in(api: Api, text: str) -> dict[str, Any]:
    """The canonical tolerance of each test of a suite's file, by name."""
    content = json.loads(text) if text.startswith("{") else yaml.safe_load(text)
    return {test.name: test.test.get("tolerance") for test in described(content, api.settings)}


TINY = yaml.safe_load(FILE.replace("rtol: 0.1}", "rtol: 1.0e-05}"))
TEXTS = {
    "comments": ("ci/nightly.yaml", FILE),
    "no end of its last line": ("nightly.yml", FILE.rstrip("\n") + "  # a\u2028# b"),
    "CRLF": ("nightly.yaml", FILE.replace("\n", "\r\n")),
    "JSON": ("ci/nightly.json", json.dumps(TINY, indent="\t")),
    "one line of JSON": ("nightly.json", json.dumps(TINY)),
}


@pytest.fixture(scope="module")
def gauged(shared: Api) -> Api:
    """The shared service, in which each test of TEXTS has a gauge."""
    for rows, edge in ((8, 2 * EDGE), (16, EDGE)):
        gauge(shared, {**LOOSE, "shape": [rows, 64]})
        for rtol in (0.1, 1e-5):
            two = {**LOOSE, "shape": [rows, 128], "tolerance": {"rtol": rtol}}
            gauge(shared, two, edge=edge)
    return shared


@pytest.mark.parametrize(("path", "text"), TEXTS.values(), ids=TEXTS)
def test_a_patch_changes_the_pushed_file_and_keeps_all_else(
    gauged: Api, tmp_path: Path, path: str, text: str
) -> None:
    api, file = gauged, tmp_path / path
    file.parent.mkdir(exist_ok=True)
    content = json.loads(text) if path.endswith("json") else yaml.safe_load(text)
    keys = stored(api, content, text, path)
    (patch,) = (answer := patched(api, *keys.values()))["suites"]
    assert (patch["suite"], patch["path"], answer["left_out"]) == ("nightly", path, [])
    assert patch["tests"] == sorted(keys.values())
    page = api.client.get(f"/tolerances/patch?{'&'.join(f'test={key}' for key in keys.values())}")
    assert patch["diff"] in unescape(page.text)
    assert "\r" not in page.text, "a browser would drop it"
    advice = {line["key"]: line["outputs"][0]["advice"] for line in api.get("/tolerances")["items"]}
    before = tolerances_in(api, text)
    for command in (["git", "apply", "-"], ["patch", "-p1"]):
        file.write_bytes(text.encode())
        subprocess.run(command, cwd=tmp_path, input=patch["diff"].encode(), check=True)
        after = tolerances_in(api, file.read_bytes().decode())
        assert after.keys() == before.keys()
        loosest = {"two 16x128": "two 8x128"}  # of a matrix
        for name, tolerance in after.items():
            assert tolerance["dx"] == advice[keys[loosest.get(name, name)]], name
        lines, old = file.read_bytes().split(b"\n"), text.encode().split(b"\n")
        count = 0 if path.endswith("json") else 10
        assert (lines[:count], not count or lines[-1]) == (old[:count], not count or old[-1])


def test_what_no_patch_changes_has_its_reason(api: Api) -> None:
    keys = stored(api, yaml.safe_load(FILE))
    bare = {"kernel": "layernorm_bw", "shape": [8, 64]}
    alone = {**LOOSE, "shape": [24, 64]}
    undeclared, lonely = ran(api, bare), ran(api, alone)
    for test in (LOOSE, bare, alone, {**LOOSE, "shape": [8, 128], "tolerance": {"rtol": 0.1}}):
        gauge(api, test)
    small, two = keys["small"], keys["two 8x128"]
    answer = patched(api, small, keys["wide"], undeclared, lonely, "nobody")
    assert answer["suites"] == []
    assert reasons(answer) == {
        small: "suite nightly: the server has no text of its file: `gonogo suites push` stores"
        " that of a YAML or JSON file",
        keys["wide"]: "no gauge advises a tolerance",
        undeclared: "it declares no tolerance",
        lonely: "no suite has run it lately",
        "nobody": "no test has this key",
    }
    alias = FILE.replace("[16, 64]", "*shape").replace("[8, 64]", "&shape [8, 64]")
    stored(api, yaml.safe_load(alias), alias)
    assert "aliases" in reasons(patched(api, small))[small]
    stored(api, yaml.safe_load(FILE), FILE)
    answer = patched(api, small, two)
    assert answer["suites"][0]["tests"] == [small]
    assert reasons(answer)[two].startswith("suite nightly, entries.2: it makes 2 tests, which")
    assert api.client.delete("/api/v1/suites/nightly").status_code in (200, 204)
    assert "is archived" in reasons(patched(api, small))[small]
    inline = yaml.safe_load(FILE) | {"name": "inline"}
    assert api.client.post("/api/v1/runs", json={"suite": inline}).status_code == 202
    with api.context.session() as session:
        suite_runs.end_all(session)
    assert "isn't stored" in reasons(patched(api, small))[small]


def test_a_test_of_two_entries_is_told_where_it_stays(api: Api) -> None:
    text = FILE.replace("[[8, 128], [16, 128]]", "[[8, 128], [16, 128]]}\n  - {name: twin, test: {")
    text = text.replace("test: {}", "test: {shape: [8, 128], tolerance: {rtol: 0.1}}}")
    keys = stored(api, yaml.safe_load(text), text)
    gauge(api, {**LOOSE, "shape": [8, 128], "tolerance": {"rtol": 0.1}})
    answer = patched(api, keys["twin"])
    assert answer["suites"][0]["tests"] == [keys["twin"]]
    assert "entries.2" in reasons(answer)[keys["twin"]]


def test_a_matrix_whose_advices_have_other_comparators_keeps_its_tolerance(api: Api) -> None:
    keys = stored(api, yaml.safe_load(FILE), FILE)
    for rows in (8, 16):
        gauge(api, {**LOOSE, "shape": [rows, 128], "tolerance": {"rtol": 0.1}})
    with api.context.session() as session:
        row = session.scalars(select(GaugeRow).order_by(GaugeRow.id.desc()).limit(1)).one()
        (dx,) = row.slack or ()
        row.slack = [replace(dx, advice={"pcc": 0.99})]
    answer = patched(api, keys["two 8x128"], keys["two 16x128"])
    assert answer["suites"] == []
    assert "different comparators" in reasons(answer)[keys["two 8x128"]]


def test_an_advice_that_widens_a_tolerance_is_marked(api: Api) -> None:
    text = FILE.replace("rtol: 1.0e-3, atol: 0.5", "rtol: 1.0e-3, atol: 1.0e-3")
    keys = stored(api, yaml.safe_load(text), text)
    gauge(api, {**LOOSE, "tolerance": {"dx": {"rtol": 0.001, "atol": 0.001}}})
    gauge(api, OTHER)
    (patch,) = patched(api, keys["small"], keys["wide"])["suites"]
    assert (len(patch["tests"]), patch["wider"]) == (2, [keys["small"]])
    page = api.client.get(f"/tolerances/patch?test={keys['small']}").text
    assert "Wider than before" in page


BAD_FILES = {
    "another suite": ("a.yaml", FILE.replace("0.1", "0.2"), "file.text"),
    "no suite": ("a.yaml", "[1]", "file.text"),
    "no date": ("a.yaml", "a: 2024-13-45", "file.text"),
    "no number": ("a.yaml", "a: !!int 'abc'", "file.text"),
    "a long number": ("a.yaml", "a: " + "9" * 5000, "file.text"),
    "deep": ("a.yaml", "[" * 100_000, "file.text"),
    "deep JSON": ("a.json", "[" * 100_000, "file.text"),
    "another form": ("a.json", FILE, "file.text"),
    "a null": ("a.yaml", FILE.replace("{rtol: 0.1}", "null"), "file.text"),
    "the whole path": ("/etc/a.yaml", FILE, "file.path"),
    "a folder above": ("ci/../../a.yaml", FILE, "file.path"),
    "TOML": ("a.toml", FILE, "file.path"),
}


@pytest.mark.parametrize(("path", "text", "field"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_of_another_suite_is_refused(shared: Api, path: str, text: str, field: str) -> None:
    body = yaml.safe_load(FILE) | {"file": {"path": path, "text": text}}
    assert refusal(shared.client.post("/api/v1/suites", json=body)) == (422, field)


def test_a_file_has_no_version_of_its_own(api: Api) -> None:
    for text in (FILE, FILE.replace("tiles of 32", "small tiles")):
        keys = stored(api, yaml.safe_load(FILE), text)
    assert api.get("/suites/nightly")["version"] == 1
    gauge(api, LOOSE)
    assert "# small tiles" in patched(api, keys["small"])["suites"][0]["diff"]


def test_the_page_has_the_list_and_its_form_makes_the_patch(api: Api) -> None:
    keys = stored(api, yaml.safe_load(FILE), FILE)
    gauge(api, LOOSE, "drop-s1")
    api.client.post("/api/v1/builds", json={"name": "main", "executor": "pytest"})
    gauge(api, {**LOOSE, "shape": [24, 64]}, "drop-s1")  # no suite ran it
    api.submit(**SELECTION)  # a test of a program, which no gauge takes
    page = api.client.get("/tolerances").text
    assert 'href="/tolerances"' in api.client.get("/").text, "the navigation leads to it"
    assert "50× loose" in page
    assert ">1 of 17</a><small>on <bdi>emulator</bdi>, n150</small>" in page
    assert "Not gauged" in page
    assert f'name="test" value="{keys["small"]}"' in page
    assert page.count('name="test"') == 1, "only a test with advice and a suite can be selected"
    assert page.count("no suite ran it") == 1
    lines = api.client.get("/tolerances.json").json()
    assert lines["items"] == api.get("/tolerances")["items"]
    assert {line["kernel"] for line in lines["items"]} == {"layernorm_bw"}
    assert lines["weeks"][-1]["median"] == pytest.approx(0.5 / EDGE)
    patch = api.client.get(f"/tolerances/patch?test={keys['small']}&test={keys['wide']}")
    assert "atol: 0.011" in patch.text, "the diff"
    assert "no gauge advises a tolerance" in patch.text
    assert "No test is selected" in api.client.get("/tolerances/patch").text
