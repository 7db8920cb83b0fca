"""The kernel host: the child process that runs kernels in a build's interpreter.

It needs Python 3.10 or newer, the standard library and NumPy only. The worker copies it to a
private folder and starts it there as `python host.py SOCKET LIFELINE`, so that GoNoGo's modules
never shadow those of the build. It may hang, crash, print without end or be killed at any moment:
the worker on the other side of the socket copes.

A message is a 4-byte big-endian length and that many bytes of UTF-8 JSON. Tensors are in .npy files
which the worker made; they are memory-mapped here and never unpickled. Each request is answered
once, in order:

  load    {"module", "factory", "paths"}: import the executor and let it warm up
          -> {"ok": true, "python", "numpy"}; numpy is null if the executor only reports
  open    {"build"}, with the chip's lock: Factory(build)
          -> {"ok": true}
  run     {"test", "seed", "inputs": {name: file}, "outputs": {name: {"file", "shape"}}}
          -> {"ok": true, "ms", "position", "kernel_s"}
  report  {"selection", "iteration", "seed", "deadline_s", "file"}: the reports go to the file
          -> {"ok": true, "ms", "position", "count"}
  close   executor.close() where there is one, then exit

An error inside the executor is answered with {"ok": false, "error": one line, "trace"}.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

COPY_BELOW_BYTES = 1 << 20
"""Smaller inputs are copied out of one lasting map.

Larger ones are mapped for each run, copy-on-write, which costs a fixed 0.1 ms.
"""
MAX_ERROR_CHARS = 4000
DEADLINE_VARIABLE = "GONOGO_PER_SEED_DEADLINE_S"
"""The variable with the seconds within which an iteration must be reported."""


def tie_to_worker(lifeline: socket.socket) -> None:
    """Have our process group killed when the worker's end of the lifeline closes.

    So the group ends no matter how the worker died. O_ASYNC with F_SETSIG asks the system for
    SIGKILL instead of SIGIO: it comes even while native code holds the GIL. The thread is the
    fallback where the system can't do that.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, getattr(fcntl, "F_SETSIG", 10), int(signal.SIGKILL))
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError as problem:
        print(
            "host: no kernel lifeline (" + str(problem) + "), only the watching thread",
            file=sys.stderr,
        )
    # Python closes its sockets as it ends, and a device's driver may hang in its destructors after
    # that: this duplicate stays open
    os.dup(lifeline.fileno())

    def watch() -> None:
        # poll, not recv: while a thread sleeps in recv, the system sends no signal
        end = select.poll()
        end.register(lifeline, select.POLLIN)
        end.poll()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


Request = dict[str, Any]


class Channel:
    """Length-prefixed JSON over the socket.

    A request may carry one file descriptor (the chip's lock).
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.descriptors: list[int] = []
        """Descriptors that came with messages; they stay open, and with them the lock."""

    def _exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            # recvmsg, not recv: the lock's descriptor comes as ancillary data of the bytes that it
            # was sent with
            chunk, ancillary, _flags, _address = self.sock.recvmsg(
                count - len(parts), socket.CMSG_SPACE(4)
            )
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                    self.descriptors.extend(fds)
            if not chunk:
                return None
            parts += chunk
        return bytes(parts)

    def receive(self) -> Any:
        """Return the next request, or None when the worker closed the socket."""
        header = self._exactly(4)
        if header is None:
            return None
        body = self._exactly(struct.unpack(">I", header)[0])
        return None if body is None else json.loads(body)

    def send(self, reply: dict[str, Any]) -> None:
        body = json.dumps(reply).encode()
        self.sock.sendall(struct.pack(">I", len(body)) + body)


class Host:
    """Executes the requests; holds the factory, the executor and the open maps between them."""

    def __init__(self) -> None:
        self.factory: Any = None
        self.executor: Any = None
        self.position = 0
        self.warm: list[Any] = []
        """The tests that ran here, whose kernels are compiled."""
        self.maps: dict[str, np.ndarray[Any, Any]] = {}

    def load(self, request: Request) -> Request:
        sys.path[:0] = request.get("paths", [])
        # Imported objects stay: looking for garbage among them takes a tenth of the start
        gc.disable()
        try:
            return self.import_executor(request)
        finally:
            gc.enable()

    def import_executor(self, request: Request) -> Request:
        """Import the executor and let it warm up; return the versions."""
        self.factory = getattr(importlib.import_module(request["module"]), request["factory"])
        warm = getattr(self.factory, "warm", None)
        if callable(warm):
            warm()  # loads compiled code; runs no kernel, so this child still counts as fresh
        if not callable(getattr(self.factory, "report", None)):
            # Kernels need it, reporters don't: it is two thirds of a process's start
            importlib.import_module("numpy")
        version = getattr(sys.modules.get("numpy"), "__version__", None)
        return {"python": sys.version.split()[0], "numpy": version}

    def open(self, request: Request) -> Request:
        self.executor = self.factory(request["build"])
        return {}

    def run(self, request: Request) -> Request:
        offered, kernel = getattr(self.executor, "kernels", None), request["test"]["kernel"]
        if isinstance(offered, (list, tuple)) and kernel not in offered:
            return {"problem": f"this executor offers {', '.join(offered)}, not {kernel}"}
        inputs = {name: self.given(file) for name, file in request["inputs"].items()}
        position = self.position
        self.position += 1
        start = time.perf_counter()
        if getattr(self.executor, "placed", False):
            outputs = self.executor.run_placed(
                request["test"], inputs, seed=request["seed"], position=position
            )
        else:
            outputs = self.executor.run(request["test"], inputs)
        spent = time.perf_counter() - start
        answer = {
            "ms": spent * 1e3,
            "position": position,
            "kernel_s": self.kernel_s(request, spent),
        }
        problem = self.store(outputs, request["outputs"])
        return {**answer, "problem": problem} if problem else answer

    def kernel_s(self, request: Request, spent: float) -> float | None:
        """Return the seconds of the kernel that just ran: its executor's, else those of the call.

        None: the executor has no device or gives no number, the kernel was compiled in this call,
        or this host has more to run than this process has processors, so that the call waited.
        """
        if request["test"] not in self.warm:
            self.warm.append(request["test"])
            return None
        seconds = getattr(self.executor, "kernel_s", spent)
        is_busy = os.getloadavg()[0] > len(os.sched_getaffinity(0))
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        return seconds if is_number and not is_busy else None

    def report(self, request: Request) -> Request:
        """Have the executor run a selection.

        Its reports go to the worker's file, because they may be larger than a message.
        """
        report = getattr(self.executor, "report", None)
        if not callable(report):
            return {"problem": "this executor runs kernels, not selections: it has no report()"}
        # The executor must end before the worker ends this process, or its reports are lost
        os.environ[DEADLINE_VARIABLE] = str(request["deadline_s"])
        position = self.position
        self.position += 1
        start = time.perf_counter()
        reports = report(request["selection"], iteration=request["iteration"], seed=request["seed"])
        spent = (time.perf_counter() - start) * 1e3
        if not isinstance(reports, (list, tuple)):
            return {
                "problem": "the executor returned "
                + type(reports).__name__
                + ", not a list of reports"
            }
        with open(request["file"], "w", encoding="utf-8", errors="replace") as file:
            json.dump(list(reports), file)
        return {"ms": spent, "position": position, "count": len(reports)}

    def close(self, _request: Request) -> Request:
        close = getattr(self.executor, "close", None)
        if callable(close):
            close()
        return {}

    def lasting(self, file: str, mode: Any) -> np.ndarray[Any, Any]:
        import numpy as np

        if file not in self.maps:
            self.maps[file] = np.load(file, mmap_mode=mode, allow_pickle=False)
        return self.maps[file]

    def given(self, file: str) -> np.ndarray[Any, Any]:
        """Return an input that the kernel may write to.

        Neither the worker's arrays nor the next seed's change.
        """
        import numpy as np

        mapped = self.lasting(file, "r")
        if mapped.nbytes < COPY_BELOW_BYTES:
            return np.array(mapped, order="C", subok=False)
        return np.asarray(np.load(file, mmap_mode="c", allow_pickle=False)).view(np.ndarray)

    def store(self, outputs: Any, expected: Request) -> str | None:
        """Write the expected outputs into the worker's files.

        Return one line about the first output that can't be stored; then none is.
        """
        import numpy as np

        if not hasattr(outputs, "keys"):
            return (
                "the executor returned "
                + type(outputs).__name__
                + ", not a mapping of names to arrays"
            )
        for name, place in expected.items():
            if name not in outputs:
                return (
                    "output "
                    + name
                    + " is missing; got "
                    + (", ".join(sorted(map(str, outputs))) or "nothing")
                )
            value, shape = outputs[name], tuple(place["shape"])
            # The mean of a vector's only row is a NumPy scalar
            if not isinstance(value, (np.ndarray, np.generic)):
                return "output " + name + " is a " + type(value).__name__ + ", not a numpy array"
            if value.dtype != np.dtype("<f4") or value.shape != shape:
                return (
                    f"output {name} is {value.dtype} {list(value.shape)}; "
                    f"expected float32 {list(shape)}"
                )
        for name, place in expected.items():
            self.lasting(place["file"], "r+")[...] = outputs[name]
        return None


def answer(host: Host, request: Request) -> Request:
    """Execute one request; an exception of the executor becomes an answer.

    SystemExit passes: then the process really ends.
    """
    operations = {
        "load": host.load,
        "open": host.open,
        "run": host.run,
        "report": host.report,
        "close": host.close,
    }
    try:
        return {"ok": True, **operations[request["op"]](request)}
    except Exception as problem:
        words = "".join(traceback.format_exception_only(type(problem), problem)).strip()
        return {
            "ok": False,
            "error": words[:MAX_ERROR_CHARS],
            "trace": traceback.format_exc()[-MAX_ERROR_CHARS:],
        }
    finally:
        for stream in (sys.stdout, sys.stderr):
            # The kernel may have closed or replaced its stream
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()


def main() -> None:
    """Answer the worker's requests until it closes the socket or sends `close`."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    lifeline = socket.socket(fileno=int(sys.argv[2]))
    tie_to_worker(lifeline)
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    channel, host = Channel(sock), Host()
    while True:
        request = channel.receive()
        if request is None:
            return
        channel.send(answer(host, request))
        if request["op"] == "close":
            return


if __name__ == "__main__":
    main()
