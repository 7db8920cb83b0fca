"""The simulated Wormhole: only a finished one is used, and only the pinned wheel is unpacked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wormhole import __main__ as making
from tests.wormhole import place, toolchain
from tests.wormhole.place import Place, Unavailable


def test_an_unfinished_folder_is_no_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place.FOLDER_VARIABLE, str(tmp_path))
    simulator = Place(tmp_path, "3.12")
    simulator.folder.mkdir()
    making.write_builds(simulator)
    with pytest.raises(Unavailable, match="run `make wormhole-sim`"):
        place.find()
    simulator.complete.touch()
    assert place.find() == simulator.builds


def test_a_wheel_with_another_checksum_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "jax_tt_plugin.whl"
    wheel.write_bytes(b"something else")
    assert toolchain.main([str(wheel), "0" * 64, str(tmp_path)]) == 1
    assert "wrong checksum of jax_tt_plugin.whl" in capsys.readouterr().err
