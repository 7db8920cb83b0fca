"""Runs of the pytest plug-in that were killed, or whose server or file was away: kept on disk, and
delivered once."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from answering import GARBLED, garbling
from api import on_port
from gonogo.public.recorded import Comparison
from gonogo.pytest_plugin import server, spool
from gonogo.pytest_plugin.__main__ import main
from gonogo.pytest_plugin.collecting import Collector
from gonogo.pytest_plugin.delivery import catch_up
from gonogo.pytest_plugin.records import Record, encoded
from gonogo.pytest_plugin.spool import PREFIX
from pytest_plugin import environment, finished, in_a_process, in_this_process
from servers import free_port

NEXT = "the next run delivers them, or `python -m gonogo.pytest_plugin`"
KILLED = """
    import gonogo, os, pathlib, pytest, signal, time

    def test_fine(gonogo_seed): gonogo.compare([1.0, 2.0], [1.0, 2.001], rtol=0.1)
    def test_red(): assert 0

    @pytest.fixture
    def compared(): gonogo.compare([1.0], [1.0])

    def test_kills_pytest(gonogo_seed, compared):
        (spool,) = pathlib.Path().glob(".gonogo-unsent-*")
        while '"node":"test_suite.py::test_kills_pytest[seed0]","record"' not in spool.read_text():
            time.sleep(0.01)  # another process's file: nothing to wait on
        os.kill(os.getppid(), signal.SIGKILL)
    """
"""pytest-xdist's controller is killed by a test in one of its processes, which end with it."""


def test_a_killed_run_and_one_whose_server_is_away_are_told_once_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite_url: str, capsys: Any
) -> None:
    run = in_this_process(monkeypatch)
    port = free_port()
    folder, url = tmp_path / "suite", f"http://127.0.0.1:{port}"
    folder.mkdir()
    file = folder / "test_suite.py"
    file.write_text(dedent(KILLED))
    options = ("-p", "xdist.plugin", "-n1", f"--gonogo={url}", "--gonogo-seeds=1")
    in_a_process(folder, *options, status=-signal.SIGKILL)
    (killed,) = folder.glob(f"{PREFIX}*")
    file.write_text("def test_fine(): pass\n")
    output_lines = run(folder, f"--gonogo={url}", status=0)
    assert output_lines[-3].startswith(f"not delivered: {url} can't be reached: "), output_lines
    (away,) = set(folder.glob(f"{PREFIX}*")) - {killed}
    assert output_lines[-2] == f"numbers: {away.name}; {NEXT}"
    assert main([str(folder)]) == 3
    assert capsys.readouterr().out.count("not delivered: ") == 1, "who is away is asked once"
    spooled_bytes = {path: path.read_bytes() for path in (killed, away)}

    def jobs() -> dict[str, dict[str, int]]:
        return {job["id"]: job["outcomes"] for job in client.get("/api/v1/jobs").json()["items"]}

    with on_port(migrated_sqlite_url, port=port) as (client, _):
        run(folder, "--gonogo=other", status=0)
        assert not jobs(), "they were for another place"
        output_lines = run(folder, f"--gonogo={url}", status=0)
        headings = [line.partition(":")[0] for line in output_lines[-4:-1]]
        assert headings == ["numbers", "delivered, too", "delivered, too"], output_lines
        assert ", which was killed: " in output_lines[-3]
        delivered_jobs = jobs()
        one, two, three = sorted(delivered_jobs.values(), key=len)
        assert one == two == {"passed": 1}
        assert three == {"passed": 1, "failed": 1, "crash": 1}
        (job,) = [job for job, outcomes in delivered_jobs.items() if "crash" in outcomes]
        (first, *_) = client.get(f"/api/v1/jobs/{job}/results").json()["items"]
        killer = first["outputs"]["test_suite.py::test_kills_pytest"]
        assert killer["message"].startswith(spool.KILLED)
        assert "test_suite.py::test_kills_pytest/actual" in first["outputs"]
        assert not list(folder.glob(f"{PREFIX}*"))
        for path, contents in spooled_bytes.items():  # killed before it heard the server's answer
            path.write_bytes(contents)
        assert main([str(folder)]) == 0
        assert jobs() == delivered_jobs
        assert not list(folder.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("answer", GARBLED)
def test_a_garbled_answer_is_an_undelivered_run(answer: bytes) -> None:
    with garbling(answer) as url, pytest.raises(spool.Undelivered):
        server.send(url, "run", b"{}", [])


def test_a_token_that_cannot_be_sent_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(server.TOKEN_VARIABLE, "gng_password\n")
    with pytest.raises(spool.Undelivered, match="GONOGO_TOKEN must") as problem:
        server.send("http://127.0.0.1:9", "run", b"{}", [])
    assert "password" not in str(problem.value)


def test_a_place_that_cannot_be_named_leaves_the_run_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = in_this_process(monkeypatch)
    (tmp_path / "test_suite.py").write_text("def test_fine(): pass\n")
    for place in ("http://[bad", "long" * 99):
        assert any("not delivered" in line for line in run(tmp_path, f"--gonogo={place}", status=0))


def test_a_child_that_a_test_forked_delivers_nothing(tmp_path: Path) -> None:
    to = str(tmp_path / "kept")
    collector = Collector(lambda: {"suite": "s"}, root=tmp_path, to=to, requested=True)
    collector._add(Record("t.py::test", "passed"))
    collector._pid += 1  # a forked process that runs on into pytest has another id
    collector.pytest_sessionfinish()
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]
    collector._pid -= 1
    collector.pytest_sessionfinish()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_run_that_goes_on_is_no_left_over_and_a_damaged_file_is_said(tmp_path: Path) -> None:
    imports = "from pathlib import Path; from gonogo.pytest_plugin.spool import Spool"
    code = f"{imports}; s = Spool(Path(), 'r1', 'x', {{}}); print(1); input()"
    options = {"cwd": tmp_path, "env": environment(), "stdin": -1, "stdout": -1, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **options) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "1\n"
        assert not list(spool.left_over(tmp_path))
        other.stdin.close()
    (left,) = spool.left_over(tmp_path)
    first = left.path.read_text().partition("\n")[0]
    record = Record("t", "failed").stored() | {"measurements": {"x": "y"}}
    line = json.dumps({"node": "t", "record": record, "done": True})
    for damaged in ("{}\n[]\n", f"{first}\n{line}\n", f"{first}\n{'[' * 100_000}\n{line}"):
        left.path.write_text(damaged)
        ((worked, words),) = catch_up(tmp_path)
        assert not worked
        assert words.startswith(f"{left.path.name} can't be read: not a file of a pytest run")


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    about = {"seed": 3, "repeat": 1, "duration_ms": 0.1, "measurements": {"x": math.nan}, "line": 7}
    record = Record("t.py::ü\udfff", "failed", **about)
    record.comparisons.append(
        Comparison(name="a", outputs={"dx": {"max_abs": 1 / 3, "needed_atol": {"0.1": 2e-300}}})
    )
    file = spool.Spool(tmp_path, "r1", "x", {"suite": "s"})
    for number in range(2):  # run again by a plug-in
        file.began("n1")
        file.write_record("n1", record, done=False)
        file.write_record("n1", record, done=bool(number))
    file.began("n2")
    file.ended("then")
    file.close(keep=True)
    with next(iter(tmp_path.iterdir())).open("ab") as torn:
        torn.write(b'{"node":"n3","rec')
    (left,) = spool.left_over(tmp_path)
    (read,) = [leftover.read() for leftover in spool.left_over(tmp_path)]
    assert left.path.exists()
    assert (read.id, read.to, read.header) == ("r1", "x", {"suite": "s"})
    assert read.finished_at == "then"
    expected = (record, Record("n2", "crash", message=spool.KILLED))
    stored = [encoded(one.to_json()) for one in read.records]
    assert stored == [encoded(one.to_json()) for one in expected]


def test_a_file_that_can_t_be_written_stops_no_tests(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("this is no folder")
    first, second = finished(tmp_path, str(path)).ended
    (left,) = tmp_path.glob(f"{PREFIX}*")
    assert first == f"not delivered: {path}: File exists"
    assert second == f"numbers: {left.name}; {NEXT}"
    path.unlink()
    numbers_line, earlier_line = finished(tmp_path, str(path)).ended
    assert numbers_line.startswith(f"numbers: {path}/")
    assert earlier_line.startswith("delivered, too: the run of ")
    nowhere = tmp_path / "nowhere"
    unstored = f"the run can't be stored in {nowhere} until it is delivered: [Errno 2]"
    assert finished(nowhere, str(path)).ended[0].startswith(unstored)
    assert len(list(path.iterdir())) == 3
