"""Run the benchmarks: `make bench`, or `python -m benchmarks [NAME ...]`.

Names choose benchmarks; the default is all. The large ones run on samples: `python -m
benchmarks.NAME` runs them in full.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

# name -> its title and the arguments with which it runs here
BENCHMARKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "speed": ("time and memory of the judge", ()),
    "ingest": ("how fast results are stored, and their size", ()),
    "busy": ("device idle: how busy a worker keeps its device", ("--seeds", "12")),
    "pages": ("how fast the pages are, on a million seeds", ("--seeds", "1000000")),
    "sweep": ("faults that only odd shapes show: every 40th is swept", ("--every", "40")),
    "yardstick": ("the gates of others beside the verdict, 40 rows", ("--sample", "40")),
    "corpus": ("what the judge says of recorded kernels, about 100 runs", ("--sample", "100")),
    "chaos": (
        "a whole service under random faults for a minute, on SQLite",
        ("--seconds", "60", "--database", "sqlite"),
    ),
}


def main(words: list[str] | None = None) -> int:
    """Run the chosen benchmarks, each in its own process; return 1 if one has failed.

    A failure does not stop those that follow.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHMARKS)}; default: all"
    )
    names: list[str] = parser.parse_args(words).names or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(BENCHMARKS)}")
    console = Console(highlight=False)
    failed: list[str] = []
    for name in names:
        title, arguments = BENCHMARKS[name]
        console.rule(f"{name}: {title}", align="left")
        sys.stdout.flush()  # the next lines are another process's
        began = time.monotonic()
        code = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *arguments],
            cwd=Path(__file__).resolve().parent.parent,
        ).returncode
        if code:
            failed.append(name)
        console.print(
            f"{name}: {'exit code ' + str(code) if code else 'done'} after "
            f"{time.monotonic() - began:.0f} s\n"
        )
    if failed:
        console.print(f"failed: {', '.join(failed)}", style="bold red")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
