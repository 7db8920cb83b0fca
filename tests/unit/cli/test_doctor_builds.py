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
    """The trials of a builds file with this text: build -> (ok, words)."""
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
    found = builds(tmp_path, monkeypatch, text)
    ok, words = found["good"]
    assert ok, words
    assert "module troublesome imports" in words
    assert sys.executable in words
    for build, said in {
        "no-python": "/no/such/python can't be started",
        "no-module": "No module named 'no_such_module'",
        "no-command": "/no/such/program does not exist",
        "not-executable": "is not executable",
        "no-executor": "there is no executor unheard",
        "[executors.unknown]": "there is no executor unknown",
    }.items():
        assert not found[build][0]
        assert said in found[build][1], found[build]


def test_an_interpreter_without_the_executor_s_packages_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gonogo_cli.operate.builds.PACKAGES", {"troublesome": "no-such-package-anywhere"}
    )
    found = builds(tmp_path, monkeypatch, '[builds.x]\nexecutor = "troublesome"\n')
    assert found["x"][0] is False
    assert found["x"][1].startswith("no-such-package-anywhere is missing in")


def test_the_canary_is_run_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds(
        tmp_path,
        monkeypatch,
        '[builds.fine]\nexecutor = "troublesome"\n[builds.nan]\nexecutor = "troublesome"\n',
    )
    found = {trial.build: (trial.ok, trial.words) for trial in trials(canary=True)}
    assert found["fine"][0], found
    assert "explained by rounding" in found["fine"][1]
    assert not found["nan"][0]
    assert "the canary's numbers are" in found["nan"][1]


def test_the_doctor_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds(tmp_path, monkeypatch, '[builds.fine]\nexecutor = "troublesome"\n')
    assert [(each.part, each.ok) for each in findings(["builds"])] == [("build fine", True)]
    monkeypatch.setenv("GONOGO_BUILDS", str(tmp_path / "none.toml"))
    gonogo_settings.load.cache_clear()
    (wrong,) = findings(["builds"])
    assert wrong.ok is False
    assert "GONOGO_BUILDS" in wrong.words


def test_without_a_builds_file_nothing_is_missing() -> None:
    assert [each.ok for each in findings(["builds"])] == [None]
