"""Build the simulated Wormhole in the cache folder, and print how to use it.

`make wormhole-sim` calls this; it does nothing when the folder is complete.

Exit codes: 0 it exists; 3 it can't be built here (the reason in one line). An unfinished folder is
never used: its mark is written last, after a kernel has run on it, and the next run starts over.
Concurrent runs wait for each other.
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

from tests.wormhole import host
from tests.wormhole.place import HERE, MENDS, TOOLCHAIN, Place, Unavailable, requirements, root

LAST_WORDS = 3000
TRIAL_DEADLINE_S = 300.0


def main() -> int:
    """Build the simulator, or print why it can't be built."""
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
                print(f"the simulated Wormhole exists: {place.folder}")
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
    """Build everything below the place's folder, from nothing. Raises Unavailable."""
    start = time.monotonic()
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir()
    print(f"building the simulated Wormhole in {place.folder} (1.3 GB)")
    run("make a virtual environment", [program, "-m", "venv", str(place.folder / "venv")])
    pip = [str(place.interpreter), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    locked = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    run(
        "install ttnn and the simulator",
        [*pip, "install", *locked, "-r", str(requirements(place.python))],
    )
    shutil.copy(MENDS, place.packages / "sitecustomize.py")
    toolchain(place, [*pip, "download", *locked])
    metal(place)
    trial(place)
    place.complete.write_text(f"made in {time.monotonic() - start:.0f} s\n", "utf-8")
    print(place.complete.read_text("utf-8").strip())


def toolchain(place: Place, download: list[str]) -> None:
    """Download the compiler's wheel and unpack the compiler."""
    name, version, digest = TOOLCHAIN
    wheels = place.folder / "wheels"
    wheels.mkdir()
    requirement = wheels / "toolchain.txt"
    requirement.write_text(f"{name}=={version} --hash=sha256:{digest}\n", "utf-8")
    run(f"download {name} {version}", [*download, "-r", str(requirement), "-d", str(wheels)])
    files = sorted(wheels.glob("*.whl"))
    if len(files) != 1:
        raise Unavailable(f"{name} {version} came as {len(files)} wheels, not one")
    unpack = [
        str(place.interpreter),
        str(HERE / "toolchain.py"),
        str(files[0]),
        digest,
        str(place.folder),
    ]
    run("unpack the compiler", unpack)
    shutil.rmtree(wheels)


def metal(place: Place) -> None:
    """Make the folder that ttnn uses as a tt-metal checkout.

    It has the wheel's parts, and the compiler where a checkout has it.
    """
    wheel, folder = place.packages / "ttnn", place.folder / "metal"
    (folder / "runtime").mkdir(parents=True)
    (folder / "build").mkdir()
    links = {
        folder / "tt_metal": wheel / "tt_metal",
        folder / "ttnn": wheel / "ttnn",
        folder / "runtime" / "hw": wheel / "runtime" / "hw",
        folder / "runtime" / "sfpi": place.folder / "runtime" / "sfpi",
        folder / "build" / "lib": wheel / "build" / "lib",
    }
    for link, target in links.items():
        if not target.exists():
            raise Unavailable(f"ttnn's wheel has no {target.relative_to(place.folder)}")
        link.symlink_to(os.path.relpath(target, link.parent))


def trial(place: Place) -> None:
    """Run a kernel on the simulator: only then is it complete."""
    run(
        "run a LayerNorm on it",
        [str(place.interpreter), str(HERE / "trial.py")],
        {**os.environ, **place.environment()},
        TRIAL_DEADLINE_S,
    )


def write_builds(place: Place) -> None:
    """Write the builds file that GONOGO_BUILDS names; replace it as a whole."""
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
    step: str,
    command: list[str],
    environment: dict[str, str] | None = None,
    deadline_s: float | None = None,
) -> None:
    """Run one step in a separate process group; processes that it left running end with it.

    Raises Unavailable with the end of its output.
    """
    print(f"  {step}", flush=True)
    with (
        Path(os.devnull).open() as no_input,
        subprocess.Popen(
            command,
            stdin=no_input,
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
            raise Unavailable(f"can't {step}: no end within {deadline_s:.0f} s") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise Unavailable(
            f"can't {step} (exit code {process.returncode}): {output.strip()[-LAST_WORDS:]}"
        )


if __name__ == "__main__":
    sys.exit(main())
