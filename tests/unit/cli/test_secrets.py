"""`gonogo secrets`: two files that only their owner reads, and that keep what they have."""

from __future__ import annotations

import stat
from pathlib import Path

from typer.testing import CliRunner

import gonogo_settings
from gonogo_cli.app import app
from gonogo_cli.operate.secrets import SERVER, WORKER, existing


def make(folder: Path) -> str:
    result = CliRunner().invoke(app, ["secrets", "--folder", str(folder)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_secrets_are_valid_settings_in_private_files(tmp_path: Path) -> None:
    make(tmp_path)
    server, worker = existing(tmp_path / SERVER), existing(tmp_path / WORKER)
    assert set(server) == {"POSTGRES_PASSWORD", "GONOGO_SECRET_KEY", "GONOGO_WORKER_KEY"}
    assert worker == {"GONOGO_WORKER_KEY": server["GONOGO_WORKER_KEY"]}
    assert server["GONOGO_SECRET_KEY"] != server["GONOGO_WORKER_KEY"]
    gonogo_settings.Settings(
        secret_key=server["GONOGO_SECRET_KEY"], worker_key=server["GONOGO_WORKER_KEY"]
    )
    for name in (SERVER, WORKER):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_values_that_are_there_stay(tmp_path: Path) -> None:
    (tmp_path / SERVER).write_text("GONOGO_WORKER_KEY=" + "k" * 40 + "\nGONOGO_PORT=9000\n")
    (tmp_path / SERVER).chmod(0o644)
    assert "added POSTGRES_PASSWORD, GONOGO_SECRET_KEY" in make(tmp_path)
    before = (tmp_path / SERVER).read_text()
    assert make(tmp_path).count("complete") == 2
    assert (tmp_path / SERVER).read_text() == before
    assert existing(tmp_path / WORKER)["GONOGO_WORKER_KEY"] == "k" * 40
    assert existing(tmp_path / SERVER)["GONOGO_PORT"] == "9000"
    assert stat.S_IMODE((tmp_path / SERVER).stat().st_mode) == 0o600
