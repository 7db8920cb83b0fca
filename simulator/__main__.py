"""Make the simulated Wormhole in the cache folder, and say how to use it.

`make wormhole-sim` calls this; it does nothing when the folder is complete.

Exit codes: 0 it is there; 3 it can't be made here (the reason in one line). A folder that was not
finished is never used: its mark is written last, after a kernel has run on it, and the next run
begins it anew. Runs at the same time wait for each other.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from simulator import host
from simulator.place import HERE, TOOLCHAIN, Place, Unavailable, requirements, root

LAST_WORDS = 3000
TRIAL_DEADLINE_S = 300.0


def main() -> int:
    """Make it, or say why not."""
    folder = root()
    try:
        program, version = host.interpreter()
        place = Place(folder, version)
        if not place.complete.exists():
            host.check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if place.complete.exists():
                print(f"the simulated Wormhole is there: {place.folder}")
            else:
                make(place, program)
            write_builds(place)
    except Unavailable as problem:
        print(f"no simulated Wormhole: {problem}", file=sys.stderr)
        return 3
    except OSError as problem:
        print(f"no simulated Wormhole: {folder}: {problem}", file=sys.stderr)
        return 3
    print(f"use it: export GONOGO_BUILDS={place.builds}")
    return 0


def make(place: Place, program: str) -> None:
    """Everything below the place's folder, from nothing. Raises Unavailable."""
    start = time.monotonic()
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir()
    print(f"making the simulated Wormhole in {place.folder} (1.3 GB)")
    run("make a virtual environment", [program, "-m", "venv", str(place.folder / "venv")])
    pip = [str(place.interpreter), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    locked = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    run(
        "install ttnn and the simulator",
        [*pip, "install", *locked, "-r", str(requirements(place.python))],
    )
    toolchain(place, [*pip, "download", *locked])
    metal(place)
    trial(place)
    place.complete.write_text(f"made in {time.monotonic() - start:.0f} s\n", "utf-8")
    print(place.complete.read_text("utf-8").strip())


def toolchain(place: Place, download: list[str]) -> None:
    """The compiler, out of its wheel."""
    name, version, digest = TOOLCHAIN
    wheels = place.folder / "wheels"
    wheels.mkdir()
    wanted = wheels / "toolchain.txt"
    wanted.write_text(f"{name}=={version} --hash=sha256:{digest}\n", "utf-8")
    run(f"download {name} {version}", [*download, "-r", str(wanted), "-d", str(wheels)])
    found = sorted(wheels.glob("*.whl"))
    if len(found) != 1:
        raise Unavailable(f"{name} {version} came as {len(found)} wheels, not one")
    unpack = [
        str(place.interpreter),
        str(HERE / "toolchain.py"),
        str(found[0]),
        digest,
        str(place.folder),
    ]
    run("unpack the compiler", unpack)
    shutil.rmtree(wheels)


def metal(place: Place) -> None:
    """Make the folder that ttnn takes for a tt-metal checkout.

    It has the wheel's own parts, and the compiler where a checkout has it.
    """
    wheel, made = place.packages / "ttnn", place.folder / "metal"
    (made / "runtime").mkdir(parents=True)
    (made / "build").mkdir()
    links = {
        made / "tt_metal": wheel / "tt_metal",
        made / "ttnn": wheel / "ttnn",
        made / "runtime" / "hw": wheel / "runtime" / "hw",
        made / "runtime" / "sfpi": place.folder / "runtime" / "sfpi",
        made / "build" / "lib": wheel / "build" / "lib",
    }
    for link, target in links.items():
        if not target.exists():
            raise Unavailable(f"ttnn's wheel has no {target.relative_to(place.folder)}")
        link.symlink_to(os.path.relpath(target, link.parent))


def trial(place: Place) -> None:
    """A kernel must have run on it before it counts as made."""
    run(
        "run a LayerNorm on it",
        [str(place.interpreter), str(HERE / "trial.py")],
        {**os.environ, **place.environment()},
        TRIAL_DEADLINE_S,
    )


def write_builds(place: Place) -> None:
    """The builds file that GONOGO_BUILDS names, replaced as a whole."""
    lines = [
        "# Made by `make wormhole-sim`: ttnn on the simulated Wormhole (docs/wormhole.md).",
        "[executors.ttnn]",
        f"python = {json.dumps(str(place.interpreter))}",
        "[executors.ttnn.environment]",
        *(f"{name} = {json.dumps(value)}" for name, value in place.environment().items()),
    ]
    text = "\n".join(lines) + "\n"
    if place.builds.exists() and place.builds.read_text("utf-8") == text:
        return
    partial = place.builds.with_suffix(f".{os.getpid()}")
    partial.write_text(text, "utf-8")
    partial.replace(place.builds)


def run(
    what: str,
    command: list[str],
    environment: dict[str, str] | None = None,
    deadline_s: float | None = None,
) -> None:
    """One step in a process group of its own; what it left running is ended with it.

    Raises Unavailable with its last words.
    """
    print(f"  {what}", flush=True)
    with (
        Path(os.devnull).open() as nothing,
        subprocess.Popen(
            command,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            output, _ = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Unavailable(f"can't {what}: no end within {deadline_s:.0f} s") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise Unavailable(
            f"can't {what} (exit code {process.returncode}): {output.strip()[-LAST_WORDS:]}"
        )


if __name__ == "__main__":
    sys.exit(main())
