"""The worker's side of the kernel host: start the child and ask it to run kernels.

It survives everything the child does and leaves no process behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gonogo.kernels import registry as kernels
from gonogo.reports.texts import MAX_MESSAGE_CHARS, clean
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import (
    ExecutorFailure,
    FloatArray,
    HostUnavailable,
    KernelCrash,
    KernelError,
    KernelHang,
    Stopped,
    output_shapes,
    shaped_inputs,
)
from gonogo_workers.executors.child_user import child_user, delete_folder
from gonogo_workers.executors.environment import child_environment
from gonogo_workers.executors.log import ChildLog
from gonogo_workers.executors.reaping import FAMILY, kill_group, kill_marked, start_time
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.executors.slots import Slot

TERM_GRACE_S = 2.0
LOAD_DEADLINE_S = 120.0
"""Importing torch or opening a device driver from a cold disk is slow."""
CLOSE_DEADLINE_S = 5.0
MAX_MESSAGE_BYTES = 1 << 20
MAX_TRACE_CHARS = 8000
HOST_RUN_VARIABLE = "GONOGO_HOST_RUN"
"""The child's variable by which we find descendants that left its process group."""
FOLDER_PREFIX = "gonogo-host-"
GARBAGE = "the kernel's process wrote garbage to its host's socket"


class KernelHost:
    """One child process: it loads an executor at once, opens a build, then runs kernels on request.

    Requests may be sent ahead, so that the child is never idle; answers come in order. `stop` may
    be called from any thread, everything else from one at a time.
    """

    def __init__(self, spec: ExecutorSpec, environment: Mapping[str, str] | None = None) -> None:
        """Start the child and send it `load`, without waiting.

        Raises HostUnavailable when that fails, such as on a full disk.
        """
        self.spec = spec
        self.host_run = uuid.uuid4().hex
        self.build: str | None = None
        self._stopping = False
        self._ended = False
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._slot: tuple[tuple[TestSpec, tuple[str, ...] | None], Slot] | None = None
        """The test that `run` ran last, and its files."""
        self._slots = 0
        self._user = child_user()
        try:
            with contextlib.ExitStack() as undo:
                self._start(environment or {}, undo)
                undo.pop_all()
        except OSError as problem:
            words = f"executor {spec.name}: can't start {spec.interpreter}: {problem.strerror}"
            raise HostUnavailable(words) from problem
        _limit_memory(self.pid, spec.memory_bytes)
        self.log.start()
        self._loaded = False
        try:
            names = {"module": spec.module, "factory": spec.factory, "paths": list(spec.paths)}
            self._send({"op": "load", **names})
        except KernelCrash as problem:  # it has already ended: no Python, or a broken one
            self.kill()
            raise HostUnavailable(f"executor {spec.name}: {problem}", self.log.tail()) from problem

    def _start(self, environment: Mapping[str, str], undo: contextlib.ExitStack) -> None:
        """Start the child. Raises OSError; `undo` then leaves nothing behind."""
        prefix = f"{FOLDER_PREFIX}{os.getpid()}-{start_time(os.getpid())}-"
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        undo.callback(delete_folder, self.folder, self._user)
        if self._user is not None:
            self._user.share(self.folder)
        script = shutil.copyfile(Path(__file__).with_name("host.py"), self.folder / "host.py")
        os.chmod(script, 0o444)
        self._socket, child_socket = _blocking_pair()
        self._lifeline, child_lifeline = _blocking_pair()
        self.log = ChildLog()
        for close in (self._socket.close, self._lifeline.close, self.log.close):
            undo.callback(close)
        identity = {} if self._user is None else self._user.variables
        env = child_environment(identity | dict(environment))
        env[HOST_RUN_VARIABLE] = self.host_run
        env[kernels.SETTING] = ",".join(sorted(set(kernels.loaded().values())))
        with child_socket, child_lifeline:
            handed = (child_socket.fileno(), child_lifeline.fileno())
            self._process = FAMILY.start(
                lambda: subprocess.Popen(
                    [self.spec.interpreter, str(script), *map(str, handed)],
                    stdin=subprocess.DEVNULL,
                    stdout=self.log.writer,
                    stderr=self.log.writer,
                    pass_fds=handed,
                    start_new_session=True,
                    env=env,
                    **({} if self._user is None else self._user.start_options),
                ),
                lambda process: process.pid,
            )
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def pid(self) -> int:
        """Process id of the child, and id of its process group and session."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the child still runs."""
        return not self._ended and not _readable([self._pidfd], 0.0)

    def wait_until_loaded(self, deadline_s: float = LOAD_DEADLINE_S) -> None:
        """Wait until the executor's module is imported.

        Raises HostUnavailable, and ends the child, when it can't be imported.
        """
        if self._loaded:
            return
        try:
            self._answer(time.monotonic() + deadline_s)
        except Stopped:
            raise
        except ExecutorFailure as problem:
            self.kill()
            module = self.spec.module.partition(".")[0]
            words = f"executor {self.spec.name}: {problem}"
            if str(problem).endswith(f"No module named {module!r}"):
                words += "; install it, or put its folder on PYTHONPATH"
            raise HostUnavailable(words, self.log.tail()) from problem
        self._loaded = True

    def open(
        self, build: str, *, lock_fd: int | None = None, deadline_s: float = LOAD_DEADLINE_S
    ) -> None:
        """Make the executor for this build; the child gets a share of the chip's lock.

        Raises KernelError when the factory raises.
        """
        self.wait_until_loaded(deadline_s)
        self._send({"op": "open", "build": build}, lock_fd)
        self._answer(time.monotonic() + deadline_s)
        self.build = build

    def submit(self, request: Mapping[str, Any]) -> None:
        """Send one `run` request without waiting for its answer."""
        self._send({"op": "run", **request})

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, NDArray[Any]],
        seed: int,
        produced: tuple[str, ...] | None,
        limit_s: float,
    ) -> dict[str, FloatArray]:
        """Run one kernel and return its outputs; raises as `receive` does.

        given: the quantized inputs. produced: the outputs that the build declares; None for all.
        """
        inputs = shaped_inputs(test, given)
        case = test, produced
        if self._slot is None or self._slot[0] != case:
            shapes = {name: array.shape for name, array in inputs.items()}
            if self._slot is not None:
                self._slot[1].delete()
            self._slots += 1
            prefix = f"single{self._slots}"
            slot = Slot(self.folder, prefix, shapes, output_shapes(test, produced))
            self._slot = case, slot
        slot = self._slot[1]
        slot.write(inputs)
        self.submit({"test": test.canonical(), "seed": seed, **slot.request()})
        self.receive(time.monotonic() + limit_s)
        return slot.read()

    @property
    def buffered(self) -> bool:
        """Whether a whole answer has been read already, or garbage."""
        got, size = len(self._buffer), int.from_bytes(self._buffer[:4])
        return got >= 4 and (got >= 4 + size or size > MAX_MESSAGE_BYTES)

    def fileno(self) -> int:
        """Return the socket, for poll: readable after an answer or when the child closed it."""
        return self._socket.fileno()

    @property
    def exit_fileno(self) -> int:
        """A descriptor that is readable once the child has ended.

        The socket may live on in grandchildren.
        """
        return self._pidfd

    def receive(self, deadline: float) -> dict[str, Any]:
        """Return the answer to the oldest request; `deadline` is on the monotonic clock.

        Raises KernelError when the kernel raised or returned a wrong output (the child lives on),
        KernelHang after the deadline and KernelCrash when the child ended or wrote garbage (it must
        be killed), Stopped when `stop` was called meanwhile.
        """
        answer = self._answer(deadline)
        if "problem" in answer:
            raise KernelError(clean(answer["problem"], MAX_MESSAGE_CHARS), self.log.tail())
        return answer

    def stop(self) -> None:
        """End the child, from any thread.

        The thread that waits for an answer gets Stopped and must `kill`, which closes our
        descriptors. If they were closed here, that thread could poll a number that is already used
        again.
        """
        with self._lock:
            self._stopping = True
            if not self._ended:
                kill_group(self._process.pid, self._pidfd, TERM_GRACE_S)

    def dismiss(self) -> None:
        """Ask the child to close its device and exit, without waiting; `close` waits."""
        with contextlib.suppress(ExecutorFailure, OSError):
            if self._loaded and not self._ended:
                self._send({"op": "close"})
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let the child close its device and exit by itself; end it when that takes too long."""
        if not self._ended:
            self.dismiss()
            _readable([self._pidfd], CLOSE_DEADLINE_S if self._loaded else 0.0)
            self.kill()

    def kill(self) -> None:
        """End the whole process group (TERM, 2 s, KILL), then descendants that left it.

        Returns when all are gone.
        """
        with self._lock:
            if self._ended:
                return
            kill_group(self._process.pid, self._pidfd, TERM_GRACE_S)
            self._process.wait()
            FAMILY.ended(self._process.pid)
            kill_marked(HOST_RUN_VARIABLE, self.host_run, self._user)
            FAMILY.end_orphans()
            self._ended = True
            self.log.finish()
            os.close(self._pidfd)
            self._release()

    def _release(self) -> None:
        self._socket.close()
        self._lifeline.close()
        delete_folder(self.folder, self._user)

    def _send(self, message: Mapping[str, Any], fd: int | None = None) -> None:
        body = json.dumps(message).encode()
        frame = struct.pack(">I", len(body)) + body
        try:
            if fd is not None:
                sent = socket.send_fds(self._socket, [frame], [fd])
                frame = frame[sent:]
            if frame:
                self._socket.sendall(frame)
        except OSError as problem:
            raise self._gone() from problem

    def _answer(self, deadline: float) -> dict[str, Any]:
        while True:
            size = int.from_bytes(self._buffer[:4])
            if self.buffered and size <= MAX_MESSAGE_BYTES:
                frame = bytes(self._buffer[4 : 4 + size])
                del self._buffer[: 4 + size]
                return self._parsed(frame)
            if self.buffered:
                raise KernelCrash(GARBAGE, self.log.tail())
            self._fill(deadline)

    def _fill(self, deadline: float) -> None:
        try:
            ready = _readable(
                [self._socket.fileno(), self._pidfd], max(0.0, deadline - time.monotonic())
            )
            if not ready:
                raise KernelHang("no answer within the deadline", self.log.tail())
            # The socket comes first: an answer written just before the child ended still counts
            chunk = self._socket.recv(1 << 16) if self._socket.fileno() in ready else b""
        except OSError as problem:
            raise self._gone() from problem
        if not chunk:
            raise self._gone()
        self._buffer += chunk

    def _parsed(self, frame: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(frame)
            if not isinstance(answer, dict) or not isinstance(answer["ok"], bool):
                raise ValueError("no answer")
        except (ValueError, KeyError, RecursionError) as problem:
            raise KernelCrash(GARBAGE, self.log.tail()) from problem
        if not answer["ok"]:
            logs = (self.log.tail(), clean(answer.get("trace", ""), MAX_TRACE_CHARS))
            error = clean(answer.get("error"), MAX_MESSAGE_CHARS)
            raise KernelError(error, "\n".join(filter(None, logs)))
        return answer

    def _gone(self) -> ExecutorFailure:
        """Return why there is no more answer: we stopped the child, or it ended by itself."""
        if self._stopping or self._ended:
            return Stopped("the child was stopped")
        _readable([self._pidfd], 1.0)
        how = "closed its socket"
        if _readable([self._pidfd], 0.0):
            # WNOWAIT: its id must stay reserved until the whole group is dead
            status = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
            if status is not None:
                how = f"exited with status {status.si_status}"
                if status.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                    how = f"was ended by {_signal_name(status.si_status)}"
        self.log.settle()
        return KernelCrash(f"the kernel's process {how}", self.log.tail())


def sweep() -> int:
    """Delete the private folders of killed workers; return their number.

    A folder's name has its worker's process id and start time.
    """
    deleted, user = 0, child_user()
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*-*"):
        pid, started = folder.name.removeprefix(FOLDER_PREFIX).split("-")[:2]
        with contextlib.suppress(OSError):
            if (
                pid.isdigit()
                and str(start_time(int(pid))) != started
                and folder.stat().st_uid == os.getuid()
            ):
                delete_folder(folder, user)
                deleted += 1
    return deleted


def _limit_memory(pid: int, most: int | None) -> None:
    """Limit the private writable memory of the child and of each process that it starts.

    Mapped files and reserved address space (drivers and libraries reserve far more than they use)
    don't count. There is no fork hook: the child already runs, and has not imported anything yet.
    """
    if most is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


def _blocking_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that block, regardless of the process's default timeout.

    Celery and Kombu change that default for a moment, from any thread (and two such moments that
    overlap leave it changed). A socket made then is non-blocking, and the child, which inherits it,
    would end on its first empty read.
    """
    pair = socket.socketpair()
    for end in pair:
        end.settimeout(None)
    return pair


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _readable(fds: list[int], timeout_s: float) -> set[int]:
    """Return the descriptors that can be read, or have been hung up, within the time."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_s * 1e3)}
