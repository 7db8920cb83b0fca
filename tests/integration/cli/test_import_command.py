"""`gonogo import` and `gonogo results --format` against a service on a port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api import on_port
from gonogo.cli.app import app
from records import pick


def test_files_go_in_and_their_results_out(
    tmp_path: Path, migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    junit, ndjson = tmp_path / "results.xml", tmp_path / "run.ndjson"
    cases = '<testcase name="a"/><testcase name="b"><failure/></testcase>'
    junit.write_text(f'<testsuite name="s">{cases}</testsuite>')
    header, test = {"format": "gonogo", "version": 1}, {"name": "t", "outcome": "passed", "seed": 4}
    ndjson.write_text(f"{json.dumps(header | {'build': 'b1'})}\n{json.dumps(test)}\n")
    with on_port(migrated_sqlite_url) as (http, _):
        monkeypatch.setenv("GONOGO_URL", str(http.base_url).rstrip("/"))

        def gonogo(*words: str) -> str:
            done = CliRunner().invoke(app, list(words), catch_exceptions=False)
            assert done.exit_code == 0, done.output
            return done.stdout

        options = ("--build", "head", "--label", "branch=main", "--json")
        imports = json.loads(gonogo("import", str(junit), str(ndjson), *options))["imports"]
        assert [job["outcomes"] for job in imports] == [{"failed": 1, "passed": 1}, {"passed": 1}]
        assert "1 failed, 1 passed; without numbers" in gonogo("import", str(junit))
        job = http.get(f"/api/v1/jobs/{imports[1]['id']}").json()
        assert pick(job, "build", "labels", "seeds") == ("head", {"branch": "main"}, [4])
        assert gonogo("results", imports[0]["id"], "--format", "junit").count("<testcase") == 2
        (tmp_path / "no.bin").write_bytes(b"\x7fELF")
        done = CliRunner().invoke(app, ["import", str(tmp_path / "no.bin")])
        assert type(done.exception).__name__ == "FieldError"
