"""`make wormhole-sim` and its folder: finished, incomplete or missing, and the message when it
can't be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gonogo_workers.executors import builds_file
from tests.wormhole import __main__ as making
from tests.wormhole import host, place
from tests.wormhole.place import Place, Unavailable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(place.FOLDER_VARIABLE, str(tmp_path / "sim"))
    return tmp_path / "sim"


def finished_place(folder: Path, python: str = "3.12") -> Place:
    """Create a place that looks finished."""
    simulator_place = Place(folder, python)
    simulator_place.folder.mkdir(parents=True)
    making.write_builds(simulator_place)
    simulator_place.complete.write_text("made in 1 s\n")
    return simulator_place


def test_without_a_simulator_it_says_what_to_run(folder: Path) -> None:
    with pytest.raises(Unavailable, match="run `make wormhole-sim`"):
        place.find()


def test_a_finished_one_is_found_by_its_builds_file_and_the_worker_can_read_that(
    folder: Path,
) -> None:
    simulator_place = finished_place(folder)
    assert place.find() == simulator_place.builds
    table = builds_file.read(str(simulator_place.builds)).executors["ttnn"]
    assert table["python"] == str(simulator_place.interpreter)
    assert table["environment"] == dict(simulator_place.environment())


def test_a_half_made_one_is_not_there(folder: Path) -> None:
    finished_place(folder).complete.unlink()
    with pytest.raises(Unavailable):
        place.find()


def test_one_made_with_other_pins_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_place(folder)
    monkeypatch.setattr(place, "TOOLCHAIN", ("jax-tt-plugin", "0.1.4", "0" * 64))
    with pytest.raises(Unavailable):
        place.find()


@pytest.mark.parametrize("python", host.VERSIONS)
def test_every_package_is_pinned_by_its_hash(python: str) -> None:
    lines = [
        line
        for line in place.requirements(python).read_text().splitlines()
        if not line.startswith("#")
    ]
    assert len(lines) == 2 * sum(line.endswith(" \\") for line in lines)
    assert all("==" in line for line in lines[::2])
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1::2])
    names = {line.split("==")[0] for line in lines[::2]}
    assert {"ttnn", "wolfpine", "zstandard", "numpy"} <= names


def test_a_missing_library_is_named_with_debian_s_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "missing_libraries", lambda: ["libmpc.so.3", "libatomic.so.1"])
    with pytest.raises(
        Unavailable,
        match=r"libmpc\.so\.3, libatomic\.so\.1; run: apt-get install -y libmpc3 libatomic1",
    ):
        host.check(folder)
    monkeypatch.undo()
    assert host.missing_libraries(["libno-such-library.so.7"]) == ["libno-such-library.so.7"]


def test_too_little_space_is_said_before_anything_is_fetched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "missing_libraries", list)
    monkeypatch.setattr(host, "NEEDED_BYTES", 2**60)
    with pytest.raises(Unavailable, match="GiB free"):
        host.check(folder)


@pytest.mark.parametrize("named", ["/no/such/python", sys.executable])
def test_an_interpreter_that_ttnn_has_no_wheel_for_is_refused(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (
        named == sys.executable
        and f"{sys.version_info.major}.{sys.version_info.minor}" in host.VERSIONS
    ):
        pytest.skip("this Python is one that ttnn has a wheel for")
    monkeypatch.setenv(place.PYTHON_VARIABLE, named)
    with pytest.raises(Unavailable, match=r"ttnn needs 3\.12 or 3\.10"):
        host.interpreter()


def test_a_step_that_fails_tells_its_last_words() -> None:
    with pytest.raises(Unavailable, match=r"can't try \(exit code 7\): the reason"):
        making.run("try", [sys.executable, "-c", "print('the reason'); raise SystemExit(7)"])
    with pytest.raises(Unavailable, match="can't wait: no end within 0 s"):
        making.run("wait", [sys.executable, "-c", "import time; time.sleep(60)"], deadline_s=0.2)


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "jax_tt_plugin.whl"
    wheel.write_bytes(b"something else")
    done = subprocess.run(
        [sys.executable, str(place.HERE / "toolchain.py"), str(wheel), "0" * 64, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "wrong checksum of jax_tt_plugin.whl" in done.stderr


def test_what_can_t_be_made_exits_with_3_and_leaves_no_builds_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place.PYTHON_VARIABLE, "/no/such/python")
    assert making.main() == 3
    assert not (folder / "builds.toml").exists()
