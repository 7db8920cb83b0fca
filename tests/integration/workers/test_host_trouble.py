"""The kernel host with kernels that hang, crash, send garbage or leave processes: it reports the
right failure and leaves nothing behind. test_worker_flow.py has more of them."""

from __future__ import annotations

import math
import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from checkout import PYTHONPATH, ROOT
from gonogo.errors import FieldError, InfrastructureError
from gonogo.judging.inputs import generate
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import (
    HostUnavailable,
    KernelError,
    KernelHang,
    duration_of,
    shaped_inputs,
)
from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE, KernelHost, sweep
from gonogo_workers.executors.log import KEPT_BYTES
from gonogo_workers.executors.pool import MAX_SPARES, HostPool
from gonogo_workers.executors.reaping import group_members, strays
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.executors.slots import TensorFile
from host_runs import SPEC, TEST, run, slot_of
from patience import WAIT_S, scaled
from running_service import until

PLUGINS = ROOT / "tests/plugins"
Start = Callable[[str], KernelHost]


@pytest.fixture(autouse=True)
def _plugins_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a host and opens a build.

    After the test, the hosts are ended. No process and no folder of theirs may be left.
    """
    hosts: list[KernelHost] = []

    def started(build: str) -> KernelHost:
        host = KernelHost(SPEC)
        hosts.append(host)
        host.open(build)
        return host

    yield started
    for host in hosts:
        host.kill()
        assert group_members(host.pid) == []
        assert strays(HOST_RUN_VARIABLE, host.host_run) == []
        assert not host.folder.exists()


def submit(host: KernelHost, test: TestSpec = TEST) -> None:
    host.submit({"test": test.canonical(), "seed": 1, **slot_of(host, test).request()})


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * WAIT_S))


def test_a_default_timeout_of_the_process_does_not_reach_the_child(start: Start) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(2.0)  # as Celery and Kombu do for a moment, from another thread
    try:
        host = start("fine")
        for _ in range(3):
            assert run(host)
    finally:
        socket.setdefaulttimeout(before)


def test_each_build_gives_its_own_outputs_of_a_test(start: Start) -> None:
    host, given = start("fine"), generate(TEST, 1)
    for produced in (("dx",), None):
        outputs = host.run(TEST, given, 1, produced, WAIT_S)
        assert tuple(outputs) == (produced or TEST.outputs)


def test_a_child_in_native_code_that_holds_the_gil_ends_with_its_worker(start: Start) -> None:
    host = start("hold-the-gil")
    submit(host)
    with pytest.raises(KernelHang):
        host.receive(time.monotonic() + 0.5)
    host._lifeline.close()  # what the end of the worker does, however it comes
    assert has_ended(host.exit_fileno)


def test_an_answer_that_was_read_along_with_another_is_not_waited_for(start: Start) -> None:
    host = start("fine")
    for _ in range(2):
        submit(host)
    until(lambda: host._socket.recv(1 << 16, socket.MSG_PEEK).count(b'"ok"') == 2)
    host.receive(time.monotonic() + WAIT_S)
    assert host.buffered
    assert host.receive(time.monotonic())["position"] == 1
    assert not host.buffered


def test_printing_is_kept_to_its_end(start: Start) -> None:
    host = start("noisy")
    run(host)
    host.kill()
    tail = host.log.tail()
    assert tail.endswith("line 39999\n")
    assert len(tail.encode()) == KEPT_BYTES


def test_a_daemon_of_the_kernel_is_found_and_ended(start: Start) -> None:
    host = start("daemon")
    run(host)
    until(lambda: len(strays(HOST_RUN_VARIABLE, host.host_run)) == 2, what="the daemon")


def test_a_tensor_file_that_was_cut_is_an_error_and_not_our_death(start: Start) -> None:
    slot = slot_of(start("fine"))
    os.truncate(slot.outputs["dx"].path, 200)
    with pytest.raises(KernelError, match="dx is damaged"):
        slot.read()


def test_a_full_disk_is_our_trouble_and_not_the_kernels(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no room"):
        TensorFile.create(tmp_path / "s-x.npy", (2**20, 2**30))
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_room_for_a_child_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    HostPool().prepare(SPEC)
    with pytest.raises(HostUnavailable, match=f"executor {SPEC.name}: can't start .*No such file"):
        KernelHost(SPEC)


@pytest.mark.parametrize("shape", [[2, 3, 40], [1, 300, 1000]])
def test_what_a_kernel_does_to_its_inputs_stays_in_its_run(start: Start, shape: list[int]) -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": shape})
    host = start("scribble")
    slot = slot_of(host, test)
    before = {name: file.path.read_bytes() for name, file in slot.inputs.items()}
    for _ in range(2):
        host.submit({"test": test.canonical(), "seed": 1, **slot.request()})
        host.receive(time.monotonic() + WAIT_S)
    assert {name: file.path.read_bytes() for name, file in slot.inputs.items()} == before


@pytest.mark.parametrize(
    "spec",
    [
        ExecutorSpec("x", "no_such_module_at_all", "F"),
        ExecutorSpec("x", "troublesome", "NoSuchFactory"),
        ExecutorSpec("x", "troublesome", "Troublesome", python="/no/such/python"),
        ExecutorSpec("x", "troublesome", "Troublesome", python="/bin/false"),
    ],
)
def test_a_host_that_cannot_start_says_why(spec: ExecutorSpec) -> None:
    with pytest.raises(HostUnavailable, match="executor x: "):
        KernelHost(spec).wait_until_loaded()


def test_secrets_stay_with_the_worker(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        *("GONOGO_BROKER_URL", "GONOGO_GITHUB_TOKEN", "CREDENTIALS_DIRECTORY", "PIP_INDEX_URL"),
        *("AWS_SECRET_ACCESS_KEY", "TT_CLOUD_TOKEN", "MINE_TOKEN"),
    }
    harmless = {"TT_METAL_HOME", "OMP_NUM_THREADS", "LC_ALL", "MINE_FOLDER", "OTHER_TOKEN"}
    for name in secrets | harmless:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GONOGO_BROKER_URL", "redis://:x@host")
    monkeypatch.setenv("GONOGO_CHILD_VARIABLES", "MINE_*,OTHER_TOKEN")
    host = start("environment")
    run(host)
    host.kill()
    names, path = host.log.tail().splitlines()[-2:]
    assert harmless | {"PYTHONPATH"} <= set(names.split())
    assert not secrets.intersection(names.split())
    # Neither the private folder nor our checkout shadows the build's own modules
    assert str(host.folder) not in path
    assert repr(str(PLUGINS)) in path


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start programs as another user")
def test_kernels_of_a_second_user_reach_only_their_folder(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        command = [sys.executable, "-c", "import numpy, troublesome"]
        subprocess.run(command, user="nobody", extra_groups=[], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nobody can't read this checkout, or its interpreter")
    secret = tmp_path / "secret_key"
    secret.touch(0o600)
    monkeypatch.setenv("GONOGO_CHILD_USER", "nobody")
    monkeypatch.setenv("GONOGO_CHILD_VARIABLES", "TROUBLE_*")
    monkeypatch.setenv("TROUBLE_PEEK", str(secret))
    host = start("peek")
    assert run(host)  # the outputs come through files that both users may use
    host.kill()
    nobody = pwd.getpwnam("nobody")
    line = f"user: {nobody.pw_uid} {nobody.pw_gid} {nobody.pw_dir}"
    assert line in host.log.tail().splitlines()
    # `start` then finds neither its process in another session nor its folder


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("no-such-user", "no such user"),
        ("0", "is root"),
        ("1", "lacks CAP_KILL, CAP_SETGID, CAP_SETUID"),
    ],
)
def test_a_second_user_that_can_t_be_is_refused(
    user: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_CHILD_USER", user)
    monkeypatch.setattr("gonogo_workers.executors.child_user._effective", lambda _bit: False)
    with pytest.raises(FieldError, match=f"GONOGO_CHILD_USER: .*{message}"):
        KernelHost(SPEC)


def program(code: str) -> subprocess.Popen[str]:
    """Start a process that does what a worker does, with a host of the troublesome executor."""
    start = "from gonogo_workers.executors.kernel_host import KernelHost\nfrom host_runs import *\n"
    path = os.pathsep.join((PYTHONPATH, str(PLUGINS), str(ROOT / "tests/support")))
    return subprocess.Popen(
        [sys.executable, "-c", start + code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


WAITS = """
host = KernelHost(SPEC)
host.open("fine")
print(host.pid, host.folder, flush=True)
time.sleep(600)
"""


def test_the_child_dies_with_a_worker_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in the shared folder, a worker of another test process would sweep, too
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with program(WAITS) as worker:
        assert worker.stdout is not None
        pid, folder = worker.stdout.readline().split()
        child = psutil.Process(int(pid))
        worker.kill()
    assert not psutil.wait_procs([child], timeout=WAIT_S)[1]
    # a dead host's folder stays until some worker starts, which leaves living hosts' folders alone
    living_host = KernelHost(SPEC)
    assert Path(folder).exists()
    assert sweep() == 1
    assert not Path(folder).exists()
    assert living_host.folder.exists()
    living_host.kill()


HIDES = """
import os
from gonogo_workers.executors.reaping import FAMILY
FAMILY.adopt()
host, other = KernelHost(SPEC), KernelHost(SPEC)
host.open("hidden_daemon")
run(host)
hidden = host.log.tail().split()[-1]
host.kill()
print(os.path.exists(f"/proc/{hidden}"), other.alive)
other.kill()
"""


def test_a_worker_leaves_no_process_that_hid_itself() -> None:
    """It has a session of its own, and nothing in its environment by which we would find it."""
    assert program(HIDES).communicate(timeout=WAIT_S)[0].split() == ["False", "True"]


@pytest.mark.parametrize(("build", "given_s"), [("timed", 0.25), ("timed-by-no-number", None)])
def test_the_first_run_and_those_of_a_busy_host_have_no_device_time(
    start: Start, build: str, given_s: float | None
) -> None:
    host, seconds = start(build), []
    other = TestSpec.parse({**TEST.canonical(), "shape": [2, 2, 40]})
    for test, sign in ((TEST, -1), (TEST, -1), (TEST, 1), (other, -1), (other, -1), (TEST, -1)):
        slot = slot_of(host, test)
        given = generate(test, 1)
        slot.write(shaped_inputs(test, {**given, "x": sign * abs(given["x"])}))
        host.submit({"test": test.canonical(), "seed": 1, **slot.request()})
        seconds.append(host.receive(time.monotonic() + WAIT_S)["kernel_s"])
    assert seconds == [None, given_s, None, None, given_s, given_s]


@pytest.mark.parametrize(
    ("spent", "duration"),
    [(1.5, 1.5), (2, 2.0), *((wrong, None) for wrong in (True, "1", -1, math.nan, 10**400))],
)
def test_a_duration_is_a_number_whatever_the_kernel_answers(
    spent: object, duration: float | None
) -> None:
    """A number of 400 digits was "a bug in the worker", and no failure of the kernel."""
    assert duration_of({"ms": spent}) == duration


@pytest.fixture
def pool() -> Iterator[HostPool]:
    pool = HostPool()
    yield pool
    spares = list(pool._spares.values())
    pool.close()
    assert [group_members(spare.pid) for spare in spares] == [[]] * len(spares)


def test_a_spare_is_fresh_and_ready(pool: HostPool) -> None:
    for _ in range(2):
        pool.prepare(SPEC)
    host = pool.take(SPEC)
    begun = time.monotonic()
    host.open("fine")
    run(host)
    assert time.monotonic() - begun < scaled(1)
    pool.prepare(SPEC)
    (spare,) = pool._spares.values()
    os.kill(spare.pid, signal.SIGKILL)
    assert has_ended(spare.exit_fileno)
    following = pool.take(SPEC)
    assert len({host.host_run, spare.host_run, following.host_run}) == 3
    for used_host in (host, following):
        used_host.close()
        assert group_members(used_host.pid) == []
    pool.prepare(SPEC)


def test_a_worker_keeps_few_spares_however_many_environments_its_builds_have(
    pool: HostPool,
) -> None:
    for number in range(MAX_SPARES + 2):
        pool.prepare(SPEC, {"N": str(number)})
    pool.take(SPEC, {"N": str(MAX_SPARES + 1)}).kill()
    assert len(pool._spares) == MAX_SPARES - 1
