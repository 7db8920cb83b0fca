"""Example pipelines install gonogo with and without the variable GONOGO_PACKAGE."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import pipelines

EXAMPLE = Path(__file__).parents[3] / "examples/repository"
INSTALL = "-m pip install --quiet --no-compile --disable-pip-version-check"
COMMIT = "a" * 40


@pytest.mark.parametrize("package", [None, "", "git+https://example.com/gonogo"])
def test_pipelines_install_gonogo_unless_they_are_told_otherwise(
    package: str | None, tmp_path: Path
) -> None:
    repository, programs, log = (tmp_path / name for name in ("repository", "bin", "log.txt"))
    shutil.copytree(EXAMPLE, repository)
    programs.mkdir()
    for name in ("python", "gonogo"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        (programs / name).chmod(0o755)
    settings = {"GONOGO_URL": "http://x", "KERNELS_STORE": str(tmp_path / "store")}
    settings |= {} if package is None else {"GONOGO_PACKAGE": package}
    path = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    values = {f"vars.{name}": value for name, value in settings.items()} | {"github.sha": COMMIT}
    for ended in (
        pipelines.github(repository, "push", {}, values, **path),
        pipelines.gitlab(repository, {"CI_COMMIT_SHA": COMMIT, **path, **settings}),
    ):
        assert ended.code == 0, ended.log
    installs = [line for line in log.read_text().splitlines() if line.startswith("python")]
    assert installs == [f"python {INSTALL} {package or 'gonogo'}"] * 2
