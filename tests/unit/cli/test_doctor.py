"""`gonogo doctor`: what each of its checks finds, and the remedy that it tells."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gonogo.settings
from answering import answering
from gonogo.cli.__main__ import main
from gonogo_service.cli.operate import doctor

PLUGINS = Path(__file__).parents[2] / "plugins"
UNLISTED = {"url": "https://gonogo.example.org", "database_url": "sqlite:///x"}
BAD_BUILDS = """
[builds.no-python]
executor = "troublesome"
python = "/no/such/python"
[builds.no-module]
executor = "missing"
[builds.no-program]
executor = "gtest"
command = ["/no/such/program"]
[builds.no-executor]
executor = "unheard"
[executors.unknown]
python = "/x"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, where `root` has one chip whose files can be opened."""
    chip = tmp_path / "root/sys/bus/pci/devices/0000:01:00.0"
    for folder in (chip, tmp_path / "root/sys/module/tenstorrent", tmp_path / "root/dev"):
        folder.mkdir(parents=True)
    (chip / "vendor").write_text("0x1e52\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "ROOT", tmp_path / "root")
    monkeypatch.setenv("GONOGO_PORT", "0")
    return tmp_path


def finding_of(part: str, **settings: str) -> doctor.Finding:
    """Return the finding of one part under these settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(f"GONOGO_{name.upper()}", value)
        gonogo.settings.load.cache_clear()
        (finding,) = doctor.findings([part])
    gonogo.settings.load.cache_clear()
    return finding


def test_a_new_machine_is_well() -> None:
    results = list(doctor.findings())
    assert [finding.part for finding in results] == list(doctor.CHECKS)
    assert len(results) == 12
    for finding in results:
        assert (finding.state, finding.remedy) == ("ok", None), finding


def test_a_check_that_breaks_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> doctor.Result:
        raise RuntimeError("no\nmore")

    monkeypatch.setitem(doctor.CHECKS, "disk", (broken, "mend it"))
    for words in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["gonogo", "doctor", "--part", "disk", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 3
    people, document = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert people.split() == ["fail", "disk", "no", "remedy:", "mend", "it"]
    finding = {"part": "disk", "state": "fail", "message": "no", "remedy": "mend it"}
    assert json.loads(document) == {"ok": False, "findings": [finding]}


def _unreadable(place: Path, patch: pytest.MonkeyPatch) -> None:
    # root may open everything, so the answer of the system is replaced
    shut = {place / "root/dev/tenstorrent/0", place / "var"}
    for path in shut:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    patch.setattr(os, "access", lambda path, _mode: Path(path) not in shut)


def _no_driver(place: Path, _: pytest.MonkeyPatch) -> None:
    (place / "root/sys/module/tenstorrent").rmdir()


def _loose(place: Path, _: pytest.MonkeyPatch) -> None:
    place.chmod(0o755)
    (place / "worker.env").write_text("GONOGO_BROKER_URL=...")
    (place / "worker.env").chmod(0o644)


def _loose_database(place: Path, _: pytest.MonkeyPatch) -> None:
    (place / "var").mkdir(mode=0o755)
    (place / "var/gonogo.sqlite").touch(mode=0o644)


def _full(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 0))


def _old(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "version_info", (3, 10, 1))


@pytest.mark.parametrize(
    ("part", "break_it", "words"),
    [
        ("python", _old, "Python"),
        ("disk", _full, "0.0 GiB free in"),
        ("permissions", _unreadable, "this user can't write"),
        ("permissions", _loose, "other users can read"),
        ("permissions", _loose_database, "gonogo.sqlite"),
        ("device-files", _unreadable, "this user can't open"),
        ("device-files", _no_driver, "the driver tenstorrent isn't loaded"),
    ],
)
def test_what_is_wrong_with_a_machine_is_found(
    place: Path, part: str, break_it: Callable[..., None], words: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(place, patch)
        finding = finding_of(part)
    assert finding.state == "fail"
    assert finding.remedy
    assert words in finding.message or words in finding.remedy


@pytest.mark.parametrize(
    ("part", "settings", "words"),
    [
        ("redis", {"broker_url": "redis://127.0.0.1:1/0"}, "127.0.0.1:1"),
        ("clock", {"broker_url": "redis://127.0.0.1:1/0"}, "127.0.0.1:1"),
        ("database", {"database_url": "sqlite:////no/such/folder/x.sqlite"}, "can't be used"),
        ("database", {"database_url": "sqlite:///empty.sqlite"}, "the schema is empty"),
        ("ttnn", {"builds": "none.toml"}, "GONOGO_BUILDS"),
        ("kernel-host", {"builds": "none.toml"}, "GONOGO_BUILDS"),
        ("kernel-host", {"kernels": "no_such_kernel"}, "GONOGO_KERNELS"),
        ("address", {"url": "http://127.0.0.1:1"}, "127.0.0.1:1"),
        ("address", UNLISTED, "GONOGO_HOSTS lacks gonogo.example.org"),
    ],
)
def test_what_is_wrong_with_the_settings_is_found(
    part: str, settings: dict[str, str], words: str
) -> None:
    finding = finding_of(part, **settings)
    assert finding.state == "fail"
    assert words in finding.message
    assert finding.remedy


def test_a_server_without_a_url_is_no_trouble() -> None:
    with answering(200) as url:
        finding = finding_of("address", port=url.rpartition(":")[2])
    assert (finding.state, "a server answers at" in finding.message) == ("ok", True)


def test_a_port_of_another_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "HEALTH_S", 0.5)  # this one never answers
    with socket.create_server(("127.0.0.1", 0)) as listener:
        finding = finding_of("address", port=str(listener.getsockname()[1]))
    assert finding.state == "fail"
    assert "in use" in finding.message


def test_every_build_that_can_t_start_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))
    executors = "troublesome=troublesome:Troublesome,missing=no_such_module:F"
    good = f'[builds.good]\nexecutor = "troublesome"\ncommand = ["{sys.executable}"]\n'
    (place / "builds.toml").write_text(good)
    settings = {"builds": "builds.toml", "executors": executors.partition(",")[0]}
    assert finding_of("kernel-host", **settings).state == "ok"
    (place / "builds.toml").write_text(good + BAD_BUILDS)
    finding = finding_of("kernel-host", builds="builds.toml", executors=executors)
    assert finding.state == "fail"
    assert "good" not in finding.message
    for words in (
        "build no-python: executor troublesome: can't start /no/such/python",
        "build no-module: executor missing: ",
        "No module named 'no_such_module'",
        "build no-program: no program '/no/such/program' that can be run",
        "build no-executor: there is no executor unheard",
        "build any: there is no executor unknown",
    ):
        assert words in finding.message


def test_an_interpreter_without_ttnn_is_named(place: Path) -> None:
    (place / "builds.toml").write_text(
        f'[executors.ttnn]\npython = "{sys.executable}"\n[builds.mine]\nexecutor = "ttnn"\n'
    )
    finding = finding_of("ttnn", builds="builds.toml")
    assert finding.state == "fail"
    assert finding.message.startswith(f"{sys.executable}: ")
    assert "PackageNotFoundError" in finding.message


def test_a_card_that_its_program_does_not_replay_is_warned_of(place: Path) -> None:
    ledger = {"subject": {}, "replay": "ttnn replays 100 %", "unreplayed": ""}
    folder = place / "locks"
    folder.mkdir()
    for name, unreplayed in (("wormhole-0", ""), ("wormhole-1", "the card isn't known")):
        (folder / f"{name}.canary").write_text(json.dumps(ledger | {"unreplayed": unreplayed}))
    finding = finding_of("cards", lock_dir=str(folder))
    assert finding.state == "warn"
    assert finding.message == "wormhole-0: ttnn replays 100 %; wormhole-1: the card isn't known"
    assert "manual: wormhole" in str(finding.remedy)
    (folder / "wormhole-1.canary").write_text("{")
    assert finding_of("cards", lock_dir=str(folder)).state == "ok"
