"""The supervisor of `gonogo up` with real processes: it restarts what dies, gives up on what can't
live, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from gonogo_service.cli.operate.supervisor import Child, GaveUp, Supervisor
from patience import WAIT_S, scaled
from running_service import family, gone, until


def shell(name: str, script: str, folder: Path, stop_s: float = WAIT_S) -> Child:
    """A child that is a shell script."""
    return Child(name, ["/bin/sh", "-c", script], dict(os.environ), folder / f"{name}.log", stop_s)


def test_a_child_that_is_killed_is_started_again_with_what_it_left_behind_removed(
    tmp_path: Path,
) -> None:
    child = shell("one", f"cd {tmp_path}; sleep 100 & echo $! >> kids; wait", tmp_path)
    supervisor = Supervisor([child], ["one"])
    supervisor.start("one")
    kids = tmp_path / "kids"
    until(kids.exists)
    until(lambda: kids.read_text().strip())
    assert child.process is not None
    first = child.process.pid
    os.kill(first, signal.SIGKILL)

    def restarted() -> bool:
        supervisor.check()
        return child.process is not None and child.process.pid != first

    until(restarted)
    until(lambda: len(kids.read_text().split()) == 2)
    old, new = map(int, kids.read_text().split())
    assert gone(family(old))
    assert psutil.pid_exists(new)
    supervisor.stop()
    until(lambda: gone(family(new)))


def test_it_gives_up_on_a_child_that_ends_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gonogo_service.cli.operate.supervisor.FIRST_DELAY_S", 0.001)
    supervisor = Supervisor([shell("bad", "echo the reason; exit 4", tmp_path)], ["bad"])
    supervisor.start("bad")
    messages: list[str] = []
    with pytest.raises(GaveUp, match=r"(?s)bad ended 5 times within 60 s, last with 4.*the reason"):
        supervisor.run(messages.append)
    assert len(messages) == 4
    supervisor.stop()


def test_children_are_stopped_in_order_and_a_deaf_one_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "order"
    polite = "trap 'echo {0} >> {1}; exit 0' TERM; echo up > {2}; while :; do sleep 0.05; done"
    deaf = f"trap '' TERM; echo up > {tmp_path / 'deaf.up'}; while :; do sleep 0.05; done"
    children = [
        shell("first", polite.format("first", log, tmp_path / "first.up"), tmp_path),
        shell("deaf", deaf, tmp_path, stop_s=0.3),
        shell("last", polite.format("last", log, tmp_path / "last.up"), tmp_path),
    ]
    supervisor = Supervisor(children, ["first", "deaf", "last"])
    for child in children:
        supervisor.start(child.name)
    until(lambda: all((tmp_path / f"{child.name}.up").exists() for child in children))
    before = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - before < scaled(5)
    assert log.read_text().split() == ["first", "last"]
    assert not any(child.running() for child in children)


def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    child = shell("one", "sleep 100", tmp_path)
    child.start()
    assert child.process is not None
    assert os.getsid(child.process.pid) == child.process.pid != os.getsid(0)
    child.kill()


def test_a_large_log_is_begun_anew_and_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gonogo_service.cli.operate.supervisor.MAX_LOG_BYTES", 10)
    child = shell("one", "echo new", tmp_path)
    child.log.write_text("old " * 10)
    child.start()
    assert child.process is not None
    child.process.wait(10)
    assert (tmp_path / "one.log").read_text() == "new\n"
    assert (tmp_path / "one.log.1").read_text() == "old " * 10
