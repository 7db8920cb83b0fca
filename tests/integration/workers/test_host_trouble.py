"""The kernel host with kernels that hang, crash, send garbage or leave processes: it reports the
right failure and leaves nothing behind."""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from checkout import PYTHONPATH
from gonogo.errors import FieldError, InfrastructureError
from gonogo.judging.inputs import generate
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import (
    ExecutorFailure,
    HostUnavailable,
    KernelCrash,
    KernelError,
    KernelHang,
    Stopped,
    duration_of,
    shaped_inputs,
)
from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE, KernelHost, sweep
from gonogo_workers.executors.log import KEPT_BYTES
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.reaping import group_members, strays
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.executors.slots import TensorFile
from host_runs import GIVEN, SPEC, TEST, run, slot_of
from patience import WAIT_S, scaled
from running_service import until

PLUGINS = Path(__file__).parents[2] / "plugins"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _plugins_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLUGINS))


@pytest.fixture
def start() -> Iterator[Callable[[str], KernelHost]]:
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


def test_a_default_timeout_of_the_process_does_not_reach_the_child(
    start: Callable[[str], KernelHost],
) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(2.0)  # as Celery and Kombu do for a moment, from another thread
    try:
        host = start("fine")
        for _ in range(3):
            assert run(host)
    finally:
        socket.setdefaulttimeout(before)


def test_a_child_in_native_code_that_holds_the_gil_ends_with_its_worker(
    start: Callable[[str], KernelHost],
) -> None:
    host = start("hold-the-gil")
    slot = slot_of(host)
    host.submit({"test": TEST.canonical(), "seed": 1, **slot.request()})
    with pytest.raises(KernelHang):
        host.receive(time.monotonic() + 0.5)
    host._lifeline.close()  # what the end of the worker does, however it comes
    ended = select.poll()
    ended.register(host.exit_fileno, select.POLLIN)
    assert ended.poll(1000 * WAIT_S)


def test_a_good_kernel_answers_with_its_outputs(start: Callable[[str], KernelHost]) -> None:
    host = start("fine")
    sys.path.insert(0, str(PLUGINS))
    try:
        from troublesome import reference
    finally:
        sys.path.remove(str(PLUGINS))
    expected = reference(TEST.canonical(), GIVEN)
    for _ in range(2):
        outputs = run(host)
        assert {name: array.tobytes() for name, array in outputs.items()} == {
            name: array.tobytes() for name, array in expected.items()
        }


def test_an_answer_that_was_read_along_with_another_is_not_waited_for(
    start: Callable[[str], KernelHost],
) -> None:
    host = start("fine")
    for _ in range(2):
        host.submit({"test": TEST.canonical(), "seed": 1, **slot_of(host).request()})
    deadline = time.monotonic() + WAIT_S
    while host._socket.recv(1 << 16, socket.MSG_PEEK).count(b'"ok"') < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    host.receive(deadline)
    assert host.buffered
    assert host.receive(deadline)["position"] == 1
    assert not host.buffered


@pytest.mark.parametrize(
    ("build", "failure", "message"),
    [
        ("crash", KernelCrash, "SIGSEGV"),
        ("exit", KernelCrash, "status 7"),
        ("garbage", KernelCrash, "garbage"),
        ("hang", KernelHang, "deadline"),
        ("endless-noise", KernelHang, "deadline"),
        ("raises", KernelError, "RuntimeError: the kernel did not like it"),
        ("wrong-shape", KernelError, r"dx is float32 \[2, 3, 1\]; expected float32 \[2, 3, 40\]"),
        ("wrong-dtype", KernelError, "dx is float64"),
        ("missing", KernelError, "dbeta is missing; got dgamma, dx"),
        ("no-array", KernelError, "dx is a list"),
        ("no-mapping", KernelError, "returned list"),
    ],
)
def test_each_way_to_fail_has_its_name(
    start: Callable[[str], KernelHost], build: str, failure: type[ExecutorFailure], message: str
) -> None:
    host = start(build)
    with pytest.raises(failure, match=message) as caught:
        run(host, deadline_s=0.3 if failure is KernelHang else WAIT_S)
    assert type(caught.value) is failure
    assert len(caught.value.log_tail.encode()) <= KEPT_BYTES + 8_000
    if build == "crash":
        assert "about to crash" in caught.value.log_tail


def test_a_kernel_error_leaves_the_child_fit_for_the_next_seed(
    start: Callable[[str], KernelHost],
) -> None:
    host = start("raises")
    for _ in range(2):
        with pytest.raises(KernelError):
            run(host)
    assert host.alive


def test_nan_and_inf_are_numbers_to_be_judged(start: Callable[[str], KernelHost]) -> None:
    assert np.isnan(run(start("nan"))["dx"]).sum() == 1
    assert np.isneginf(run(start("inf"))["dx"]).sum() == 1


def test_printing_is_kept_to_its_end(start: Callable[[str], KernelHost]) -> None:
    host = start("noisy")
    run(host)
    host.kill()
    tail = host.log.tail()
    assert tail.endswith("line 39999\n")
    assert len(tail.encode()) == KEPT_BYTES


def test_a_child_that_ignores_term_is_killed_with_its_children(
    start: Callable[[str], KernelHost],
) -> None:
    host = start("stubborn-hang")
    with pytest.raises(KernelHang):
        run(host, deadline_s=scaled(1))
    assert len(group_members(host.pid)) == 2
    begun = time.monotonic()
    host.kill()
    assert 1.5 < time.monotonic() - begun < scaled(5)
    assert group_members(host.pid) == []


def test_a_daemon_of_the_kernel_is_found_and_ended(start: Callable[[str], KernelHost]) -> None:
    host = start("daemon")
    run(host)
    until(lambda: len(strays(HOST_RUN_VARIABLE, host.host_run)) == 2, what="the daemon")
    host.kill()
    assert strays(HOST_RUN_VARIABLE, host.host_run) == []


def test_a_tensor_file_that_was_cut_is_an_error_and_not_our_death(
    start: Callable[[str], KernelHost],
) -> None:
    host = start("fine")
    slot = slot_of(host)
    os.truncate(slot.outputs["dx"].path, 200)
    with pytest.raises(KernelError, match="dx is damaged"):
        slot.read()


def test_a_full_disk_is_our_trouble_and_not_the_kernels(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no room"):
        TensorFile.create(tmp_path / "s-x.npy", (2**20, 2**30))
    assert list(tmp_path.iterdir()) == []


def test_what_a_kernel_does_to_its_inputs_stays_in_its_run(
    start: Callable[[str], KernelHost],
) -> None:
    for shape in ([2, 3, 40], [1, 300, 1000]):
        test = TestSpec.parse({"kernel": "layernorm_bw", "shape": shape})
        host = start("scribble")
        slot = slot_of(host, test)
        before = {name: file.path.read_bytes() for name, file in slot.inputs.items()}
        for _ in range(2):
            host.submit({"test": test.canonical(), "seed": 1, **slot.request()})
            host.receive(time.monotonic() + WAIT_S)
        assert {name: file.path.read_bytes() for name, file in slot.inputs.items()} == before


def test_stop_from_another_thread_ends_the_wait(start: Callable[[str], KernelHost]) -> None:
    host = start("hang")
    threading.Timer(0.2, host.stop).start()
    begun = time.monotonic()
    with pytest.raises(Stopped):
        run(host)
    assert time.monotonic() - begun < scaled(4)


def test_an_unknown_build_is_said_and_the_child_lives() -> None:
    host = KernelHost(SPEC)
    try:
        with pytest.raises(KernelError, match="unknown build 'nonsense'"):
            host.open("nonsense")
    finally:
        host.kill()


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


def test_secrets_stay_with_the_worker(
    start: Callable[[str], KernelHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "GONOGO_BROKER_URL": "redis://:x@host",
        "GONOGO_GITHUB_TOKEN": "x",
        "CREDENTIALS_DIRECTORY": "/x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PIP_INDEX_URL": "x",
        "TT_CLOUD_TOKEN": "x",
        "MINE_TOKEN": "x",
    }
    harmless = ("TT_METAL_HOME", "OMP_NUM_THREADS", "LC_ALL", "MINE_FOLDER", "OTHER_TOKEN")
    for name, value in {**secrets, **dict.fromkeys(harmless, "1")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GONOGO_CHILD_VARIABLES", "MINE_*,OTHER_TOKEN")
    host = start("environment")
    run(host)
    host.kill()
    names, path = host.log.tail().splitlines()[-2:]
    assert {*harmless, "PYTHONPATH"} <= set(names.split())
    assert not {*secrets}.intersection(names.split())
    # Neither the private folder nor our checkout shadows the build's own modules
    assert str(host.folder) not in path
    assert repr(str(PLUGINS)) in path


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start programs as another user")
def test_kernels_of_a_second_user_reach_only_their_folder(
    start: Callable[[str], KernelHost], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    ("user", "words"),
    [
        ("no-such-user", "no such user"),
        ("0", "is root"),
        ("1", "lacks CAP_KILL, CAP_SETGID, CAP_SETUID"),
    ],
)
def test_a_second_user_that_can_t_be_is_refused(
    user: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_CHILD_USER", user)
    monkeypatch.setattr("gonogo_workers.executors.child_user._effective", lambda _bit: False)
    with pytest.raises(FieldError, match=f"GONOGO_CHILD_USER: .*{words}"):
        KernelHost(SPEC)


def test_the_child_dies_with_a_worker_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in the shared folder, a worker of another test process would sweep, too
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec
host = KernelHost(ExecutorSpec("troublesome", "troublesome", "Troublesome"))
host.open("fine")
print(host.pid, host.folder, flush=True)
time.sleep(60)
"""
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    pid, folder = worker.stdout.readline().split()
    child = os.pidfd_open(int(pid))
    worker.kill()
    worker.wait()
    worker.stdout.close()
    try:
        assert _ended(child, 20.0)
    finally:
        os.close(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(pid), signal.SIGKILL)
    # A dead host's folder stays until some worker starts, which leaves living hosts' folders alone
    living_host = KernelHost(SPEC)
    assert Path(folder).exists()
    assert sweep() == 1
    assert not Path(folder).exists()
    assert living_host.folder.exists()
    living_host.kill()


def test_a_worker_leaves_no_process_that_hid_itself() -> None:
    """It has a session of its own, and nothing in its environment by which we would find it."""
    program = f"""
import os, sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests" / "support")]!r}
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.reaping import FAMILY
from host_runs import SPEC, run
FAMILY.adopt()
host, other = KernelHost(SPEC), KernelHost(SPEC)
host.open("hidden_daemon")
run(host)
hidden = host.log.tail().split()[-1]
host.kill()
print(os.path.exists(f"/proc/{{hidden}}"), other.alive)
other.kill()
"""
    environment = {**os.environ, "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{PLUGINS}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=WAIT_S,
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


@pytest.mark.parametrize(("build", "given_s"), [("timed", 0.25), ("timed-by-no-number", None)])
def test_the_first_run_and_those_of_a_busy_host_have_no_device_time(
    start: Callable[[str], KernelHost], build: str, given_s: float | None
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
    [
        (1.5, 1.5),
        (2, 2.0),
        (True, None),
        ("1", None),
        (-1, None),
        (math.nan, None),
        (10**400, None),
    ],
)
def test_a_duration_is_a_number_whatever_the_kernel_answers(
    spent: object, duration: float | None
) -> None:
    """A number of 400 digits was "a bug in the worker", and no failure of the kernel."""
    assert duration_of({"ms": spent}) == duration


def test_a_spare_is_fresh_and_ready() -> None:
    pool = HostPool()
    try:
        pool.prepare(SPEC)
        pool.prepare(SPEC)
        host = pool.take(SPEC)
        begun = time.monotonic()
        host.open("fine")
        run(host)
        assert time.monotonic() - begun < scaled(1)
        other = pool.take(SPEC)
        assert other.host_run != host.host_run
        pool.prepare(SPEC)
        spare = next(iter(pool._spares.values()))
        os.kill(spare.pid, signal.SIGKILL)
        _ended(spare.exit_fileno, 3.0)
        third = pool.take(SPEC)
        assert third.host_run != spare.host_run
        for used_host in (host, other, third):
            used_host.close()
            assert group_members(used_host.pid) == []
        pool.prepare(SPEC)
        last = next(iter(pool._spares.values()))
    finally:
        pool.close()
    assert group_members(last.pid) == []


def _ended(pidfd: int, seconds: float) -> bool:
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1e3))
