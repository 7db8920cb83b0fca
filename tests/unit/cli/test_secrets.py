"""`gonogo secrets`: files that keep what they have, of which only their owner reads secrets."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from urllib.parse import urlsplit

from typer.testing import CliRunner

import gonogo.settings
from gonogo.cli.app import app
from gonogo_service.cli.operate.secrets import ACCOUNTS_FILE as FILE
from gonogo_service.cli.operate.secrets import SERVER, WORKER, existing


def make(folder: Path) -> str:
    result = CliRunner().invoke(app, ["secrets", "--folder", str(folder)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_secrets_are_valid_settings_in_private_files(tmp_path: Path) -> None:
    make(tmp_path)
    server, worker = existing(tmp_path / SERVER), existing(tmp_path / WORKER)
    assert set(server) == {"POSTGRES_PASSWORD", "GONOGO_SECRET_KEY", "GONOGO_BROKER_URL"}
    assert set(worker) == {"GONOGO_BROKER_URL"}
    gonogo.settings.Settings(
        secret_key=server["GONOGO_SECRET_KEY"], broker_url=server["GONOGO_BROKER_URL"]
    )
    for name in (SERVER, WORKER):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_each_role_has_an_account_of_its_own_whose_file_holds_no_password(tmp_path: Path) -> None:
    make(tmp_path)
    accounts = (tmp_path / FILE).read_text()
    passwords = set()
    for name, account in ((SERVER, "gonogo"), (WORKER, "worker")):
        url = urlsplit(existing(tmp_path / name)["GONOGO_BROKER_URL"])
        assert url.username == account
        assert url.password is not None
        passwords.add(url.password)
        assert url.password not in accounts
        digest = hashlib.sha256(url.password.encode()).hexdigest()
        assert f"user {account} on #{digest} " in accounts
    assert len(passwords) == 2


def test_values_that_are_there_stay(tmp_path: Path) -> None:
    known = "redis://gonogo:known@elsewhere:6379/0"
    (tmp_path / SERVER).write_text(f"GONOGO_BROKER_URL={known}\nGONOGO_PORT=9000\n")
    (tmp_path / SERVER).chmod(0o644)
    assert "added POSTGRES_PASSWORD, GONOGO_SECRET_KEY" in make(tmp_path)
    before = (tmp_path / SERVER).read_text(), (tmp_path / FILE).read_text()
    assert make(tmp_path).count("complete") == 2
    assert before == ((tmp_path / SERVER).read_text(), (tmp_path / FILE).read_text())
    assert hashlib.sha256(b"known").hexdigest() in before[1]
    server = existing(tmp_path / SERVER)
    assert (server["GONOGO_BROKER_URL"], server["GONOGO_PORT"]) == (known, "9000")
    assert stat.S_IMODE((tmp_path / SERVER).stat().st_mode) == 0o600
