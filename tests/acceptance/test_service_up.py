"""`gonogo up` with real processes: no configuration, one instance a folder, keys kept private,
everything gone after Ctrl-C."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import documented
import forked
from gonogo.cli.kit.client import Client
from gonogo_service.cli.operate import redis_server
from patience import WAIT_S, scaled
from running_service import (
    QUICK,
    TINY,
    clean_environment,
    every_seed_once,
    family,
    gone,
    gonogo,
    submit,
    until,
)

TROUBLESOME = {"GONOGO_EXECUTORS": "troublesome=troublesome:Troublesome"}


class Up:
    """A `gonogo up` in a folder of its own."""

    def __init__(self, folder: Path, **extra: str) -> None:
        self.folder = folder
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        pipes |= {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        environment, words = clean_environment(**QUICK, **extra), ("up", "--port", "0", "--json")
        self.process = subprocess.Popen(gonogo(*words), cwd=folder, env=environment, **pipes)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"up ended: {self.process.communicate()[1]}")
        self.record = json.loads(line)
        self.url = str(self.record["url"])

    def child(self, word: str) -> psutil.Process:
        """Return the child process that is this program or runs this subcommand."""

        def children() -> list[psutil.Process]:
            every = psutil.Process(self.process.pid).children()
            return [child for child in every if word in (child.name(), *child.cmdline())]

        # one that has just ended is started again after a moment
        until(lambda: len(children()) == 1, what=f"one child {word}\n{self.logs()}")
        return children()[0]

    def logs(self) -> str:
        """Return the ends of its logs."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}"
            for path in (self.folder / "var/logs").iterdir()
        )

    def close(self) -> None:
        """End `gonogo up` with every process that it started."""
        left = family(self.process.pid)
        self.process.terminate()
        try:
            self.process.communicate(timeout=WAIT_S)
        finally:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def troubles(up: Up) -> int:
    """Return how often the worker has written that the service could not take what it sent."""
    text = (up.folder / "var/logs/worker.log").read_text(errors="replace")
    return text.count("keeping what this worker has to send") + text.count("no heartbeat")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `gonogo up` for these tests: a start takes seven seconds of a processor. Without any
    setting of its own it runs in test_wheel.py, for the demo, which stops it by SIGTERM."""
    running = Up(tmp_path_factory.mktemp("up"), **TROUBLESOME)
    yield running
    running.close()


def test_a_second_one_says_where_the_first_is_and_exits_with_3(shared: Up) -> None:
    second = forked.run(("up", "--port", "0"), clean_environment(), shared.folder)
    assert second.returncode == 3
    assert shared.url in second.stderr
    assert str(shared.process.pid) in second.stderr
    assert json.loads((shared.folder / "var/up.json").read_text()) == shared.record


def test_keys_and_socket_are_its_owner_s_alone(shared: Up) -> None:
    for name in ("secret_key", "host.json"):
        path = shared.folder / "var" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(path.read_text()) >= 32
    socket = Path(shared.record["broker_url"].removeprefix("unix://").partition("?")[0])
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert len(str(socket)) < 108
    for process in family(shared.process.pid):
        assert {"GONOGO_SECRET_KEY", "GONOGO_BROKER_URL"}.isdisjoint(process.environ())


def test_a_locked_database_is_a_clear_error_and_the_job_resumes(shared: Up) -> None:
    with Client(shared.url) as client:
        job = submit(client, 40)
        file = shared.folder / "var/gonogo.sqlite"
        lock = sqlite3.connect(file, timeout=WAIT_S, isolation_level=None)
        before = troubles(shared)
        lock.execute("BEGIN IMMEDIATE")
        until(lambda: troubles(shared) > before, what="the worker to run into the lock")
        assert client.job(job)["id"] == job  # readers don't wait for writers
        lock.execute("ROLLBACK")
        lock.close()
        assert client.wait(job)["verdict"] == "pass"
        every_seed_once(client, job, range(40))


def test_a_full_disk_is_a_clear_error_and_the_job_resumes(shared: Up) -> None:
    """Each write of the processes that write fails, by their limit of a file's size."""
    with Client(shared.url) as client:
        client.wait(submit(client, 1))
        job = submit(client, 60)
        before = troubles(shared)
        writers = [shared.child("background").pid, shared.child("serve").pid]
        free = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in writers]
        for pid in writers:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        body = {"test": TINY, "build": "correct", "seeds": {"start": 0, "count": 1}}
        refused = documented.HTTP.post(f"{shared.url}/api/v1/jobs", json=body, timeout=WAIT_S)
        assert refused.status_code == 503, refused.text
        assert "disk" in refused.json()["detail"]
        until(lambda: troubles(shared) > before, what="the worker to run into the limit")
        for pid, limit in zip(writers, free, strict=True):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        ended = client.wait(job)
        assert ended["verdict"] == "pass", f"{ended}\n{shared.logs()}"
        every_seed_once(client, job, range(60))


def test_it_survives_the_death_of_each_child(shared: Up) -> None:
    with Client(shared.url) as client:
        for word in (Path(redis_server.program()).name, "background", "worker", "serve"):
            victim = shared.child(word)
            victim.kill()
            until(lambda victim=victim: gone([victim]), what=f"the end of {word}")
            job = submit(client, 3)
            ended = client.wait(job)
            assert (ended["state"], ended["verdict"]) == ("finished", "pass"), (
                f"after {word} was killed: {ended}\n{shared.logs()}"
            )
            every_seed_once(client, job, range(3))


def test_killed_it_leaves_nothing_and_the_next_one_goes_on_and_stops_with_pages_open(
    shared: Up,
) -> None:
    """The last test of this file, because it kills the one that they share."""
    with Client(shared.url) as client:
        target = {"executor": "troublesome", "arch": "wormhole", "board": "n150"}
        job = submit(client, 1000, build="slow", target=target)
        until(lambda: client.job(job)["done"] > 0, what=f"the job to run\n{shared.logs()}")
    processes = family(shared.process.pid)
    shared.process.kill()
    shared.process.communicate()
    until(lambda: gone(processes), what="the children to end")
    following = Up(shared.folder, **TROUBLESOME)
    with Client(following.url) as client:
        done = client.job(job)["done"]
        until(lambda: client.job(job)["done"] > done, what="the job to go on")
        # a connection that is kept open doesn't keep it
        stops_in_time(following, job)


def stops_in_time(up: Up, job: str) -> None:
    """End `gonogo up` by Ctrl-C while the job runs and a client reads the job's events."""
    processes = family(up.process.pid)
    opened = threading.Event()

    def watch() -> None:
        address = f"{up.url}/api/v1/jobs/{job}/events"
        with (
            suppress(httpx.TransportError),
            httpx.stream("GET", address, timeout=WAIT_S) as answer,
        ):
            for _ in answer.iter_lines():
                opened.set()

    page = threading.Thread(target=watch)
    page.start()
    assert opened.wait(WAIT_S)
    before = time.monotonic()
    os.kill(up.process.pid, signal.SIGINT)
    errors = up.process.communicate(timeout=WAIT_S)[1]
    took = time.monotonic() - before
    page.join(WAIT_S)
    assert took < scaled(10), f"{took:.1f} s"
    assert up.process.returncode == 0, errors
    assert gone(processes), [process for process in processes if process.is_running()]
    assert not (up.folder / "var/up.json").exists()
    assert not page.is_alive()
