"""Codes of hosts name a lab's own certificate authority, and every command trusts it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from api import on_port
from gonogo import settings as configuration
from gonogo.cli.app import main
from tls_hop import Authority, hop


def test_a_host_joins_only_where_it_believes_the_authority_that_the_code_names(
    tmp_path: Path, migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name in ("ours", "another", "host"):
        (tmp_path / name).mkdir()
    lab, another = Authority(tmp_path / "ours"), Authority(tmp_path / "another")

    def gonogo(*words: str, **settings: str) -> tuple[int, str, str]:
        for name in ("ca_file", "url"):
            monkeypatch.delenv(f"GONOGO_{name.upper()}", raising=False)
        for name, value in settings.items():
            monkeypatch.setenv(f"GONOGO_{name.upper()}", value)
        configuration.load.cache_clear()
        monkeypatch.setattr(sys, "argv", ["gonogo", "hosts", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), out, error

    monkeypatch.setenv("GONOGO_VAR_DIR", str(tmp_path / "host"))
    with (
        on_port(migrated_sqlite_url, ca_file=str(lab.file)) as (client, _),
        hop(client.base_url.port or 0, lab.issue("localhost")) as port,
    ):
        here = {"url": str(client.base_url)}
        code, printed, _ = gonogo("add", "lab-1", "--address", "127.0.0.1", **here)
        assert code == 0
        join = ("join", f"https://localhost:{port}", printed.strip())
        assert "GONOGO_CA_FILE: is needed" in gonogo(*join)[2]
        assert "is of another authority" in gonogo(*join, ca_file=str(another.file))[2]
        assert "has no certificate" in gonogo(*join, ca_file=str(Path(__file__)))[2]
        assert not (tmp_path / "host" / "host.json").exists()
        assert gonogo(*join, ca_file=str(lab.file))[0] == 0
        assert json.loads((tmp_path / "host" / "host.json").read_text())["name"] == "lab-1"
        secure = {"url": join[1]}
        assert "certificate verify failed" in gonogo("list", **secure)[2]
        assert "lab-1" in gonogo("list", ca_file=str(lab.file), **secure)[1]
