"""A plug-in executor whose builds misbehave in every way that the kernel host must survive (used by
the integration tests).

The build's name says what goes wrong. With "-sometimes" after it, it goes wrong only on seeds whose
first x is positive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np


def reference(test: dict, inputs: dict) -> dict:
    """The plain float32 kernel, for shapes that a test can afford."""
    x = inputs["x"].astype(np.float64)
    gamma = inputs["gamma"].astype(np.float64)
    epsilon = test.get("epsilon", 1e-6)
    if test["kernel"] == "layernorm_fw":
        mean = x.mean(-1)
        rstd = 1 / np.sqrt(x.var(-1) + epsilon)
        y = (x - mean[..., None]) * rstd[..., None] * gamma + inputs["beta"]
        return {"y": y.astype(np.float32), "mean": np.float32(mean), "rstd": np.float32(rstd)}
    dy = inputs["dy"].astype(np.float64)
    if "mean" in inputs:
        mean, rstd = inputs["mean"].astype(np.float64), inputs["rstd"].astype(np.float64)
    else:
        mean, rstd = x.mean(-1), 1 / np.sqrt(x.var(-1) + epsilon)
    xhat = (x - mean[..., None]) * rstd[..., None]
    p = dy * gamma
    dx = rstd[..., None] * (
        p - p.mean(-1, keepdims=True) - xhat * (p * xhat).mean(-1, keepdims=True)
    )
    rows = tuple(range(x.ndim - 1))
    return {
        "dx": dx.astype(np.float32),
        "dgamma": (dy * xhat).sum(rows).astype(np.float32),
        "dbeta": dy.sum(rows).astype(np.float32),
    }


class Troublesome:
    """The factory of the plug-in, which is the executor, too."""

    def __init__(self, build: str) -> None:
        if os.environ.get("TROUBLE_GONE") and pathlib.Path(os.environ["TROUBLE_GONE"]).exists():
            raise OSError("no such device")
        trouble = build.removesuffix("-sometimes")
        if (
            trouble.startswith("_")
            or trouble == "run"
            or not hasattr(self, trouble.replace("-", "_"))
        ):
            raise KeyError(f"unknown build {build!r}")
        self.always = trouble == build
        self.act = getattr(self, trouble.replace("-", "_"))

    def run(self, test: dict, inputs: dict) -> dict:
        """Run the kernel, and misbehave as the build's name says."""
        outputs = reference(test, inputs)
        if self.always or inputs["x"].flat[0] > 0:
            return self.act(outputs, inputs)
        return outputs

    def hold_the_gil(self, outputs: dict, inputs: dict) -> dict:
        """Wait forever in native code and let no other Python thread run, as a driver does whose
        device has gone."""
        ctypes.PyDLL(None).pause()
        return outputs

    def timed(self, outputs: dict, inputs: dict) -> dict:
        """Measure the kernel, on a host with one processor too few where x begins above zero."""
        self.kernel_s = 0.25
        load = len(os.sched_getaffinity(0)) + (inputs["x"].flat[0] > 0)
        os.getloadavg = lambda: (load, 0.0, 0.0)
        return outputs

    def timed_by_no_number(self, outputs: dict, inputs: dict) -> dict:
        """Have a method where the seconds should be."""
        self.kernel_s = self.fine
        return outputs

    def fine(self, outputs: dict, inputs: dict) -> dict:
        return outputs

    def hang(self, outputs: dict, inputs: dict) -> dict:
        while True:
            time.sleep(1)

    def stubborn_hang(self, outputs: dict, inputs: dict) -> dict:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by what it starts
        subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(1)"])
        while True:
            time.sleep(1)

    def daemon(self, outputs: dict, inputs: dict) -> dict:
        """Leave a process in its own session, and return as usual."""
        subprocess.Popen(
            [sys.executable, "-c", "import time\nwhile True: time.sleep(1)"], start_new_session=True
        )
        return outputs

    def hidden_daemon(self, outputs: dict, inputs: dict) -> dict:
        """Leave a process that has lost its parent, its session and its environment."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, str(os.getpid()).encode())
                os.execve("/bin/sleep", ["sleep", "600"], {})
            os._exit(0)
        os.wait()
        print(os.read(reader, 20).decode())
        return outputs

    def wedges(self, outputs: dict, inputs: dict) -> dict:
        """Hang, and leave the device in a state that only a reset ends.

        The file that TROUBLE_WEDGED names stands for that state.
        """
        pathlib.Path(os.environ["TROUBLE_WEDGED"]).write_text("wedged")
        return self.hang(outputs, inputs)

    def watched(self, outputs: dict, inputs: dict) -> dict:
        """Hang; under a watcher, leave the log that tt-metal's watcher would leave.

        TROUBLE_WATCHER names the watcher's folder.
        """
        folder = os.environ.get("TROUBLE_WATCHER")
        if folder:
            home = pathlib.Path(folder) / "generated" / "watcher"
            home.mkdir(parents=True)
            (home / "watcher.log").write_text(
                "Device 0 worker core(x= 0,y= 0) virtual(x=18,y=18): CWFW,CRBW,   R,   R,   R  "
                "rmsg:D0G|BNT h_id:  1 smsg:GGGG "
                "k_ids:  4|  3|  5|  5|  5\nk_id[  3]: kernels/reader_ln.cpp\n"
                "k_id[  4]: kernels/writer_ln.cpp\nk_id[  5]: kernels/ln.cpp\n"
            )
            (pathlib.Path(folder) / "prints.txt").write_text("0:(x=0,y=0):TR0: block 1\n")
        return self.hang(outputs, inputs)

    def right(self, outputs: dict, inputs: dict) -> dict:
        """Return right outputs, as the canary's build does, unless the device is wedged.

        With TROUBLE_BITS, the last bit of each dx is another one.
        """
        if "TROUBLE_WEDGED" in os.environ and pathlib.Path(os.environ["TROUBLE_WEDGED"]).exists():
            raise RuntimeError("the device does not answer")
        if "TROUBLE_BITS" in os.environ:
            return {**outputs, "dx": np.nextafter(outputs["dx"], np.float32(np.inf))}
        return outputs

    def hungry(self, outputs: dict, inputs: dict) -> dict:
        """Allocate memory until none is left."""
        blocks = []
        while True:
            blocks.append(bytearray(16 * 2**20))

    def pipe_holder(self, outputs: dict, inputs: dict) -> dict:
        """Leave a child in its own session that keeps stdout and stderr open, and crash."""
        subprocess.Popen(
            [sys.executable, "-c", "import time\nwhile True: time.sleep(1)"], start_new_session=True
        )
        os.write(2, b"about to leave a child behind\n")
        os._exit(3)

    def simulator(self, outputs: dict, inputs: dict) -> dict:
        """Start a server as the simulator does (detached, by a process that ends), and die while
        it runs."""
        server = "import time\nwhile True: time.sleep(1)"
        starter = (
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {server!r}, "
            f"'framework.sim'], start_new_session=True)"
        )
        subprocess.run([sys.executable, "-c", starter], check=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return outputs

    def gigabyte(self, outputs: dict, inputs: dict) -> dict:
        block = b"x" * 2**20
        for _ in range(1000):
            os.write(1, block)
        os.write(1, b"the last line\n")
        return outputs

    def crash(self, outputs: dict, inputs: dict) -> dict:
        os.write(2, b"about to crash\n")
        os.kill(os.getpid(), signal.SIGSEGV)
        return outputs

    def exit(self, outputs: dict, inputs: dict) -> dict:
        sys.exit(7)

    def raises(self, outputs: dict, inputs: dict) -> dict:
        raise RuntimeError("the kernel did not like it")

    def raises_odd_text(self, outputs: dict, inputs: dict) -> dict:
        """Raise with characters that no database takes, in a message without end."""
        raise RuntimeError("half a letter: \ud800, and none: \0" + "x" * 10_000)

    def wrong_shape(self, outputs: dict, inputs: dict) -> dict:
        first = next(iter(outputs))
        return {**outputs, first: outputs[first][..., :1]}

    def wrong_dtype(self, outputs: dict, inputs: dict) -> dict:
        first = next(iter(outputs))
        return {**outputs, first: outputs[first].astype(np.float64)}

    def missing(self, outputs: dict, inputs: dict) -> dict:
        outputs.popitem()
        return outputs

    def no_array(self, outputs: dict, inputs: dict) -> dict:
        return {name: array.tolist() for name, array in outputs.items()}

    def no_mapping(self, outputs: dict, inputs: dict) -> list:
        return list(outputs.values())

    def noisy(self, outputs: dict, inputs: dict) -> dict:
        for number in range(40_000):
            print("line", number)
        return outputs

    def endless_noise(self, outputs: dict, inputs: dict) -> dict:
        line = b"x" * 4096
        while True:
            os.write(1, line)

    def nan(self, outputs: dict, inputs: dict) -> dict:
        first = next(iter(outputs))
        outputs[first].flat[3] = np.nan
        return outputs

    def inf(self, outputs: dict, inputs: dict) -> dict:
        first = next(iter(outputs))
        outputs[first].flat[3] = -np.inf
        return outputs

    def garbage(self, outputs: dict, inputs: dict) -> dict:
        """Write to every open file, as a stray pointer of a driver might."""
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2:  # the log stays readable
                with contextlib.suppress(OSError):
                    os.write(fd, b"\xff" * 64)
        return outputs

    def scribble(self, outputs: dict, inputs: dict) -> dict:
        for array in inputs.values():
            array[...] = 0
        return outputs

    def slow(self, outputs: dict, inputs: dict) -> dict:
        time.sleep(0.2)
        return outputs

    def environment(self, outputs: dict, inputs: dict) -> dict:
        print("names:", " ".join(sorted(os.environ)))
        print("path:", sys.path)
        return outputs

    def snoop(self, outputs: dict, inputs: dict) -> dict:
        """Look for marked secrets wherever a program of this user may look.

        The findings go to the file that TROUBLE_FOUND names. TROUBLE_KRAM is the mark, backward:
        it must not be found itself. TROUBLE_SPARED is the test's own process: it and what is above
        it are no part of the service.
        """
        mark, findings = os.environ["TROUBLE_KRAM"][::-1].encode(), []
        spared = ancestors(int(os.environ["TROUBLE_SPARED"]))
        if any(mark.decode() in value for value in os.environ.values()):
            findings.append("own environ")
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            for place, content in process_parts(pid):
                inherited = pid == os.getpid() and place.startswith("mem")
                if mark in content and pid not in spared and not inherited:
                    findings.append(f"{pid} {place}")
        above = ancestors(os.getpid())
        findings.append(f"ancestors {sum(os.path.isdir(f'/proc/{pid}') for pid in above)}")
        pathlib.Path(os.environ["TROUBLE_FOUND"]).write_text("\n".join(findings))
        return outputs

    def peek(self, outputs: dict, inputs: dict) -> dict:
        """Say who runs this, and fail unless the file that TROUBLE_PEEK names can't be read."""
        print("user:", os.getuid(), os.getgid(), pathlib.Path.home(), flush=True)
        try:
            pathlib.Path(os.environ["TROUBLE_PEEK"]).read_bytes()
        except PermissionError:
            subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
            pathlib.Path(sys.argv[0]).parent.joinpath("mine").mkdir(mode=0o700)
            return outputs
        raise AssertionError("the worker's file is readable")


def ancestors(pid: int) -> list[int]:
    """Return a process and everything above it."""
    above = []
    while pid:
        above.append(pid)
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
    return above


def process_parts(pid: int) -> Iterator[tuple[str, bytes]]:
    """Yield what /proc shows of a process: what can't be read is left out."""
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            yield name, pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                path = pathlib.Path(f"/proc/{pid}/fd/{number}")
                yield f"fd {number}", os.readlink(path).encode()
                if path.is_file() and path.stat().st_size < 1 << 20:
                    yield f"fd {number}", path.read_bytes()
    with contextlib.suppress(OSError, ValueError):
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in maps:
                area, rights, *_ = line.split()
                begin, end = (int(part, 16) for part in area.split("-"))
                if rights.startswith("rw") and end - begin < 64 << 20:
                    with contextlib.suppress(OSError, OverflowError):
                        memory.seek(begin)
                        yield "mem", memory.read(end - begin)
