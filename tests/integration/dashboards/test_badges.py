"""A badge tells a name that never ran from one that doesn't exist, as a picture that a README
shows."""

from __future__ import annotations

import pytest

from api import JOB, Api
from gonogo_service.builds import store as builds
from suite_runs import SUITE


def shown(api: Api, address: str) -> str:
    """Return a badge; a README shows no picture with another status."""
    answer = api.client.get(address)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    return answer.text


def test_a_badge_says_not_run_or_no_such_name(api: Api) -> None:
    assert api.client.post("/api/v1/suites", json=SUITE).status_code == 201
    with api.context.session() as session:
        builds.add(session, name="b1", executor="ttnn", branch="main", sequence=1)
    key = api.get(f"/jobs/{api.submit()}")["test_key"]
    name = f"{JOB['test']['kernel']} " + "×".join(map(str, JOB["test"]["shape"]))
    for address, title in {
        f"suites/{SUITE['name']}": f"{SUITE['name']}: not run",
        "suites/typo": "typo: no such suite",
        "branches/main": "main: not run",
        "branches/typo/deep": "typo/deep: no such branch",
        f"tests/{key}": f"{name}: not run",
        "tests/typo": "typo: no such test",
    }.items():
        assert f"<title>{title}</title>" in shown(api, f"/badges/{address}.svg")


@pytest.mark.parametrize("noun", ["suites", "tests", "branches"])
def test_an_unknown_name_is_escaped(api: Api, noun: str) -> None:
    assert "<script" not in shown(api, f"/badges/{noun}/%3Cscript%3E.svg")
