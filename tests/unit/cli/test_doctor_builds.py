"""`gonogo doctor` tries each build of the builds file, and says what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gonogo_settings
from gonogo_cli.operate.builds import trials
from gonogo_cli.operate.doctor import findings

PLUGINS = Path(__file__).parents[2] / "plugins"


def builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> dict[str, tuple[bool, str]]:
    """Try the builds of a file with this text; return build -> (ok, words)."""
    (tmp_path / "builds.toml").write_text(text)
    monkeypatch.setenv("GONOGO_BUILDS", str(tmp_path / "builds.toml"))
    monkeypatch.setenv(
        "GONOGO_EXECUTORS", "troublesome=troublesome:Troublesome,missing=no_such_module:F"
    )
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))
    gonogo_settings.load.cache_clear()
    return {trial.build: (trial.ok, trial.words) for trial in trials()}


def test_each_build_is_tried_and_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool").write_text("")
    text = f"""
[builds.good]
executor = "troublesome"
command = ["{sys.executable}"]
[builds.no-python]
executor = "troublesome"
python = "/no/such/python"
[builds.no-module]
executor = "missing"
[builds.no-command]
executor = "troublesome"
command = ["/no/such/program"]
[builds.not-executable]
executor = "troublesome"
command = ["{tmp_path / "tool"}"]
[builds.no-executor]
executor = "unheard"
[executors.unknown]
python = "/x"
"""
    tried_builds = builds(tmp_path, monkeypatch, text)
    ok, words = tried_builds["good"]
    assert ok, words
    assert "module troublesome imports" in words
    assert sys.executable in words
    for build, message in {
        "no-python": "/no/such/python can't be started",
        "no-module": "No module named 'no_such_module'",
        "no-command": "/no/such/program does not exist",
        "not-executable": "is not executable",
        "no-executor": "there is no executor unheard",
        "[executors.unknown]": "there is no executor unknown",
    }.items():
        assert not tried_builds[build][0]
        assert message in tried_builds[build][1], tried_builds[build]


def test_an_interpreter_without_the_executor_s_packages_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gonogo_cli.operate.builds.PACKAGES", {"troublesome": "no-such-package-anywhere"}
    )
    tried_builds = builds(tmp_path, monkeypatch, '[builds.x]\nexecutor = "troublesome"\n')
    assert tried_builds["x"][0] is False
    assert tried_builds["x"][1].startswith("no-such-package-anywhere is missing in")


def test_the_canary_is_run_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds(
        tmp_path,
        monkeypatch,
        '[builds.fine]\nexecutor = "troublesome"\n[builds.nan]\nexecutor = "troublesome"\n',
    )
    tried_builds = {trial.build: (trial.ok, trial.words) for trial in trials(canary=True)}
    assert tried_builds["fine"][0], tried_builds
    assert "explained by rounding" in tried_builds["fine"][1]
    assert not tried_builds["nan"][0]
    assert "the canary's numbers are" in tried_builds["nan"][1]


def test_the_doctor_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds(tmp_path, monkeypatch, '[builds.fine]\nexecutor = "troublesome"\n')
    assert [(finding.part, finding.ok) for finding in findings(["builds"])] == [
        ("build fine", True)
    ]
    monkeypatch.setenv("GONOGO_BUILDS", str(tmp_path / "none.toml"))
    gonogo_settings.load.cache_clear()
    (wrong,) = findings(["builds"])
    assert wrong.ok is False
    assert "GONOGO_BUILDS" in wrong.words


def test_without_a_builds_file_nothing_is_missing() -> None:
    assert [finding.ok for finding in findings(["builds"])] == [None]


@pytest.mark.usefixtures("examples_installed")
def test_the_doctor_says_which_kernels_of_packages_a_service_would_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GONOGO_KERNELS", "l2norm_fw")
    (finding,) = findings(["kernels"])
    assert (finding.ok, finding.words) == (
        True,
        "GONOGO_KERNELS allows l2norm_fw; installed, for local commands and pytest only: l2norm_bw",
    )
    monkeypatch.setenv("GONOGO_KERNELS", "l2norm_fw, l2norm")
    gonogo_settings.load.cache_clear()
    (wrong,) = findings(["kernels"])
    assert (wrong.ok, wrong.words.partition(":")[0]) == (False, "GONOGO_KERNELS")
