"""`gonogo check` of a staged suite: the table, the blocker, the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILDS = """
[builds.op]
executor = "pytest"
environment = {{ PYTEST_DISABLE_PLUGIN_AUTOLOAD = "1" }}
options = {{ root = "{root}" }}
[builds.op.suites.staged]
stages = [
    {{ name = "api", files = ["test_api.py"] }},
    {{ name = "kernels", files = ["test_kernels.py"] }},
]
"""


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    builds = folder / "builds.toml"
    builds.write_text(BUILDS.format(root=folder))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GONOGO_BUILDS": str(builds)}
    given = ["check", "--executor", "pytest", "--build", "op", "--suite", "staged"]
    command = [sys.executable, "-m", "gonogo.cli", *given, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_table_and_the_blocker_are_told(tmp_path: Path) -> None:
    (tmp_path / "test_api.py").write_text("def test_api(): pass\n")
    (tmp_path / "test_kernels.py").write_text("def test_right(): assert 0, 'wrong tile'\n")
    done = check(tmp_path, "--seeds", "2", "--json")
    assert done.returncode == 1, done.stderr
    diagnosis = json.loads(done.stdout)["diagnosis"]
    statuses = {stage["name"]: stage["status"] for stage in diagnosis["stages"]["stages"]}
    assert statuses == {"api": "passed", "kernels": "failed"}
    assert diagnosis["words"].startswith(
        "Of 2 stages 1 passed, 2 (kernels) failed; the blocker is 'kernels': no test passed, first"
    )

    done = check(tmp_path, "--stage", "api")
    assert "The stage 'api' passed." in done.stdout
    assert "kernels" not in done.stdout


def test_an_unknown_suite_or_stage_is_a_usage_error(tmp_path: Path) -> None:
    for words, line in (
        (["--suite", "stagd"], "suite: unknown suite of op; did you mean 'staged'?"),
        (["--stage", "kernel"], "stage: unknown stage of the suite staged; did you mean 'kernels'"),
    ):
        done = check(tmp_path, *words)
        assert (done.returncode, line in done.stderr) == (2, True), done.stderr
