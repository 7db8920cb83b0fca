"""`gonogo results --format` against a service on a port: Parquet, and files that are whole."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

import stored_jobs
import suite_runs
from api import on_port
from gonogo.cli.app import app
from gonogo.errors import FieldError, InfrastructureError
from gonogo_service.cli import parquet
from gonogo_service.people.context import Context
from gonogo_service.results.exports import parts
from records import pick

TEXT = "=cmd() \u2028 <b>&amp; ]]> \x1b[31m \N{SNOWMAN}"


@pytest.fixture
def service(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[httpx.Client, Context]]:
    with on_port(migrated_sqlite_url) as (http, context):
        monkeypatch.setenv("GONOGO_URL", str(http.base_url).rstrip("/"))
        yield http, context


@pytest.fixture
def job(service: tuple[httpx.Client, Context]) -> str:
    """A job with three hollow passes and a seed that hung."""
    with service[1].session() as session:
        job_id = stored_jobs.submit(session, seeds=4).id
        rows = [stored_jobs.row(seed, wrong=True) for seed in (2, 0, 1)]
        stored_jobs.report(session, job_id, [*rows, stored_jobs.unwell(3, "hang", TEXT)])
        stored_jobs.finish(session, job_id)
    return job_id


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["results", *words])


def gonogo(*words: str) -> bytes:
    done = invoke(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout_bytes


def table_of(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    return rows


def lines_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_parquet_holds_what_csv_and_ndjson_hold(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 4)
    monkeypatch.setattr(parts, "PAGE", 2)
    file = tmp_path / "results.parquet"
    assert gonogo(job, "--format", "parquet", "--output", str(file)) == b""
    meta = pyarrow.parquet.ParquetFile(file).metadata
    assert (meta.num_rows, meta.num_row_groups) == (3 * 3 + 1, 3)
    rows = table_of(file.read_bytes())
    assert table_of(gonogo(job, "--format", "parquet")) == rows
    seeds = [json.loads(line) for line in gonogo(job, "--format", "ndjson").split(b"\n")[:-1]]
    flat = [(seed, *output) for seed in seeds for output in (seed["outputs"] or {"": {}}).items()]
    of_seed = ("seed", "iteration", "repeat", "message", "verdict")
    for row, (seed, output, judged) in zip(rows, flat, strict=True):
        assert pick(row, *of_seed) == pick(seed, *of_seed)
        assert pick(row, "job", "build", "output") == (job, "tt-train-2025", output)
        for name in ("rounding_ratio", "max_abs", "digest"):
            assert row[name] == judged.get(name)
    assert rows[-1]["message"] == TEXT
    lines = lines_of(gonogo(job, "--format", "csv"))
    for row, line in zip(rows, lines, strict=True):
        assert json.loads(row["other"] or "null") == json.loads(line["other"] or "null")
        assert row["rounding_ratio"] == (
            float(line["rounding_ratio"] or "nan") if line["output"] else None
        )


def test_parquet_of_a_job_without_rows_and_of_a_run(service: tuple[httpx.Client, Context]) -> None:
    http, context = service
    run = http.post("/api/v1/runs", json={"suite": suite_runs.SUITE}).json()["id"]
    jobs = [test["id"] for test in http.get(f"/api/v1/runs/{run}").json()["tests"]]
    assert table_of(gonogo(jobs[0], "--format", "parquet")) == []
    with context.session() as session:
        for job in jobs:
            suite_runs.finish(session, job)
    rows = table_of(gonogo(run, "--run", "--format", "parquet"))
    assert [row["job"] for row in rows] == [jobs[0]] * 6 + [jobs[1]] * 3 + [jobs[2]] * 3


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_URL", "http://127.0.0.1:9")
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    file = tmp_path / "results.parquet"
    problem = invoke("x", "--format", "parquet", "--output", str(file)).exception
    assert isinstance(problem, FieldError)  # exit code 2
    assert 'pip install "gonogo[parquet]"' in str(problem)
    assert "\n" not in str(problem)
    assert not file.exists()


class Dying(BaseHTTPRequestHandler):
    """Sends half of an answer and hangs up."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_whole = "/results" not in self.path
        body = b'{"id":"j","build":"b","test_key":"k"}' if is_whole else b'{"seed":0}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) if is_whole else 100))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = not is_whole

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", 0), Dying)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("GONOGO_URL", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("dying")
@pytest.mark.parametrize("form", ["ndjson", "parquet"])
@pytest.mark.parametrize("before", [None, "an older file"])
def test_an_answer_that_breaks_off_leaves_the_folder_as_it_was(
    tmp_path: Path, form: str, before: str | None
) -> None:
    file = tmp_path / "results"
    if before is not None:
        file.write_text(before)
    done = invoke("j", "--format", form, "--output", str(file))
    assert isinstance(done.exception, InfrastructureError)
    assert [path.read_text() for path in tmp_path.iterdir()] == ([before] if before else [])
    if form == "parquet":
        assert invoke("j", "--format", form).stdout_bytes == b""


def test_what_cannot_be_written_is_named(job: str, tmp_path: Path) -> None:
    done = invoke(job, "--format", "csv", "--output", str(tmp_path / "no" / "results.csv"))
    assert isinstance(done.exception, FieldError)
    assert "--output: can't be written: No such file or directory" in str(done.exception)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_pipe_gets_the_file_and_stays_a_pipe(job: str, tmp_path: Path, form: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # the pipe holds 64 KiB, and without a writer this reads nothing instead of waiting
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        gonogo(job, "--format", form, "--output", str(pipe))
        data = reader.read()
    assert pipe.is_fifo()
    rows = lines_of(data) if form == "csv" else table_of(data)
    assert len(rows) == 10


def test_a_file_keeps_its_link_and_its_mode(job: str, tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("")
    file.chmod(0o600)
    link.symlink_to(file)
    gonogo(job, "--format", "csv", "--output", str(link))
    assert link.is_symlink()
    assert file.read_text().startswith("seed,")
    assert file.stat().st_mode & 0o777 == 0o600
