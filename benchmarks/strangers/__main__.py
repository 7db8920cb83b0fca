"""Count flagged wrong kernels and flagged right ones among kernels that nobody here has seen.

`python -m benchmarks.strangers [--seeds 8]`.

Asked: of the wrong ones whose fault can show (showing.py) at least 99%, from 8 seeds or fewer; of
the right ones at most 1%. Exit code 1 if not. Every miss and every false flag is named with its
figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from benchmarks import samples
from benchmarks.strangers.judged import SEEDS, Record, exotic, rights, wrongs
from benchmarks.strangers.showing import Showing

LEAST_FLAGGED = 0.99
MOST_FALSE = 0.01


def main(words: list[str] | None = None) -> int:
    """Run all; print what was flagged."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.strangers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help="at most so many seeds a kernel and test"
    )
    parser.add_argument("--only", default="", help="only strangers with this in their name")
    parser.add_argument(
        "--faint", action="store_true", help="name the faint and the hidden ones, too"
    )
    given = parser.parse_args(words)
    console = Console(highlight=False, soft_wrap=True)
    console.print(samples.sentence("strangers"))
    began = time.monotonic()
    every = rights(given.seeds, only=given.only)
    right = [record for record in every if not exotic(record)]
    wrong = wrongs(given.seeds, only=given.only)
    by_showing = {
        level: [record for record in wrong if record.showing is level] for level in Showing
    }
    shown = by_showing[Showing.shows]
    flagged, false = (
        _share(shown, "wrong kernels whose fault shows", console),
        _share(right, "right kernels", console),
    )
    _share(by_showing[Showing.faint], "wrong kernels whose fault is faint (counted apart)", console)
    _share(
        by_showing[Showing.hidden], "wrong kernels whose fault can't show (counted apart)", console
    )
    _share(
        [record for record in every if exotic(record)],
        "right kernels that round to odd (counted apart)",
        console,
    )
    for record in shown:
        if not record.flagged:
            console.print(f"MISSED {_words(record)}")
    for record in every:
        if record.flagged:
            console.print(f"FALSE  {_words(record)}")
    if given.faint:
        for record in (*by_showing[Showing.faint], *by_showing[Showing.hidden]):
            if not record.flagged:
                console.print(f"{record.showing.name:6} {_words(record)}")
    console.print(f"{time.monotonic() - began:.0f} s")
    return int(
        (flagged is not None and flagged < LEAST_FLAGGED)
        or (false is not None and false > MOST_FALSE)
    )


def _share(records: Sequence[Record], title: str, console: Console) -> float | None:
    if not records:
        return None
    flagged = sum(record.flagged for record in records)
    builds = {
        record.build.rsplit(":", 1)[0] if record.build.startswith("wrong") else record.build
        for record in records
    }
    console.print(
        f"{title}: {flagged} of {len(records)} flagged, {flagged / len(records):.2%} "
        f"({len(builds)} kernels)"
    )
    return flagged / len(records)


def _words(record: Record) -> str:
    largest = sorted(record.figures.items(), key=lambda item: -item[1])[:5]
    figures = ", ".join(f"{name} {value:.3g}" for name, value in largest)
    return f"{record.build} on {record.case}: {figures} ({', '.join(sorted(set(record.verdicts)))})"


if __name__ == "__main__":
    sys.exit(main())
