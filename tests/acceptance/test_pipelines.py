"""The pipelines of examples/repository, step by step, against a real server with a device host.

A hosted run of GitHub or GitLab stays unseen; the shell, the variables and the files are theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import pipelines
from gonogo.cli.kit.client import Client
from records import pick
from running_service import Service

EXAMPLE = Path(__file__).parents[2] / "examples/repository"
MAIN, WRONG, RIGHT, LOST = (digit * 40 for digit in "abcd")
ZEROS = "0" * 40
DOUBLE = ("p - s1 - xhat", "p - 2 * s1 - xhat")
"""The fault of a pull request: s1 is subtracted twice, and the tolerance doesn't see it."""


@pytest.fixture
def service(tmp_path: Path, sqlite_url: str, private_redis: Any) -> Iterator[Service]:
    new_service = Service(tmp_path, sqlite_url, private_redis.url)
    new_service.workers.clear()
    new_service.worker_environment |= {
        "GONOGO_EXECUTORS": "kernels=kernels_executor:KernelsExecutor",
        "KERNELS_STORE": str(tmp_path / "store"),
        "GONOGO_CHILD_VARIABLES": "KERNELS_STORE",
        "PYTHONPATH": f"{new_service.worker_environment['PYTHONPATH']}{os.pathsep}{EXAMPLE}",
    }
    try:
        new_service.add_worker("kernels")
        new_service.start_all_but_workers()
        yield new_service
    finally:
        new_service.close()


def test_both_pipelines_gate_on_what_a_commit_changed(service: Service, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(EXAMPLE, repository)
    kernel = repository / "kernels/layernorm.py"
    right = kernel.read_text()
    with service.client() as client:
        limits = {"builds": ["kernels-*"], "branches": ["main", "main/pull-*"]}
        body = {"name": "ci", "scopes": ["submit"], **limits}
        token = client.call("POST", "/tokens", body=body)["token"]
        settings = {"GONOGO_URL": service.url, "GONOGO_TOKEN": token}
        settings["KERNELS_STORE"] = str(tmp_path / "store")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        values = {f"vars.{name}": value for name, value in settings.items()}
        values["secrets.GONOGO_TOKEN"] = token

        def github(event: str, content: Any, sha: str, ref: str, **more: str) -> pipelines.Ended:
            known = values | {"github.sha": sha, **more}
            place = {"GITHUB_SHA": sha, "GITHUB_REF_NAME": ref, "PATH": path}
            return pipelines.github(repository, event, content, known, **place)

        pushed = github("push", {"before": ZEROS}, MAIN, "main")
        assert pushed.code == 0, pushed.log
        assert "There is no base" in pushed.summary
        assert client.call("GET", f"/builds/kernels-{MAIN}")["branch"] == "main"

        kernel.write_text(right.replace(*DOUBLE))
        pull = {
            "number": 7,
            "head": {"sha": WRONG, "repo": {"full_name": "org/kernels"}},
            "base": {"sha": MAIN, "ref": "main"},
        }
        of_head = {"github.event.pull_request.head.sha": WRONG}
        refused = github("pull_request", {"pull_request": pull}, "e" * 40, "7/merge", **of_head)
        assert refused.code == 1, refused.log
        assert pick(refused.outputs, "code", "build") == ("1", f"kernels-{WRONG}")
        assert "### ❌ GoNoGo: Blocked: 2 new hollow passes" in refused.summary
        line = (repository / "tests/numerics.yaml").read_text().split("- name: wide")[0].count("\n")
        place = f"file=tests/numerics.yaml,line={line + 1}"
        assert f"::error {place},title=New hollow pass%3A wide::" in refused.log
        assert "s1 is subtracted twice" in refused.summary
        head = client.call("GET", f"/builds/kernels-{WRONG}")
        assert pick(head, "branch", "commit") == ("main/pull-7", WRONG)

        kernel.write_text(right)
        merge = {
            "CI_COMMIT_SHA": RIGHT,
            "CI_PROJECT_PATH": "org/kernels",
            "CI_MERGE_REQUEST_IID": "8",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": MAIN,
            "PATH": path,
            **settings,
        }
        passed = pipelines.gitlab(repository, merge)
        assert passed.code == 0, passed.log
        assert "Clear: nothing new" in passed.log
        assert _junit(repository) == {"tests": "2", "failures": "0", "errors": "0"}

        kernel.write_text(right.replace(*DOUBLE))
        lost = {"CI_COMMIT_SHA": LOST, "CI_MERGE_REQUEST_DIFF_BASE_SHA": "f" * 40}
        warned = pipelines.gitlab(repository, {**merge, **lost})
        assert warned.code == 0, warned.log
        assert f"The base kernels-{'f' * 40} was never registered" in warned.log
        assert _junit(repository)["failures"] == "0"
        issues = json.loads((repository / "gonogo-code-quality.json").read_text())
        assert [issue["location"]["path"] for issue in issues] == ["tests/numerics.yaml"] * 2

        again = pipelines.gitlab(repository, {**merge, "CI_COMMIT_SHA": LOST})
        assert again.code == 1, again.log
        assert _junit(repository) == {"tests": "2", "failures": "2", "errors": "0"}
        _outside_of_its_bounds(client, repository, {**merge, "CI_COMMIT_SHA": MAIN})


def _outside_of_its_bounds(client: Client, repository: Path, variables: dict[str, str]) -> None:
    elsewhere = {**variables, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "release"}
    refused = pipelines.gitlab(repository, {**elsewhere, "CI_COMMIT_SHA": "9" * 40})
    assert refused.code == 2, refused.log
    assert "may not register the build" in refused.log
    assert "branches main, main/pull-*" in refused.log


def _junit(repository: Path) -> dict[str, str | None]:
    (suite,) = ElementTree.parse(repository / "gonogo-junit.xml").getroot()
    return {name: suite.get(name) for name in ("tests", "failures", "errors")}
