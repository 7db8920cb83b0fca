"""The figures of a benchmark: printed beside what is asked, and kept as JSON.

`.benchmarks/NAME.json` has the moment, the commit, the arguments and the machine beside them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".benchmarks"
SHOWN = 20
"""Problems that are printed; all are in the JSON."""


@dataclass(frozen=True)
class Figure:
    """A measured value, its unit, and what is asked of it."""

    name: str
    value: float
    unit: str
    most: float | None = None
    least: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Return whether the value is within what is asked."""
        is_low_enough = self.most is None or self.value <= self.most
        return is_low_enough and (self.least is None or self.value >= self.least)

    @property
    def usage(self) -> float:
        """Return the share of its limit that the value takes: above 1, it misses the limit."""
        if self.most is not None:
            return self.value / self.most if self.most else float(self.value > 0)
        return 0.0 if self.least is None else self.least / max(self.value, 1e-9)

    @property
    def limits(self) -> str:
        """Return what is asked in words."""
        named = {"at most": self.most, "at least": self.least}
        return ", ".join(
            f"{word} {number(limit)}" for word, limit in named.items() if limit is not None
        )


def number(value: float) -> str:
    """Return a figure in four digits, or all those before its point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def report(name: str, figures: Sequence[Figure], problems: Sequence[str] = ()) -> int:
    """Print and keep the figures of a benchmark; return 1 where one isn't as asked."""
    table = Table(name, "measured", "unit", "asked", "")
    for figure in figures:
        shown = figure.name, number(figure.value), figure.unit, figure.limits, figure.note
        table.add_row(*shown, style=None if figure.is_met else "bold")
    console = Console(width=120, highlight=False, markup=False)
    console.print(table)
    for problem in problems[:SHOWN]:
        console.print(f"WRONG: {problem}", style="bold red")
    if len(problems) > SHOWN:
        console.print(f"and {len(problems) - SHOWN} more")
    keep(name, figures, problems)
    return int(bool(problems) or not all(figure.is_met for figure in figures))


def keep(name: str, figures: Sequence[Figure], problems: Sequence[str] = ()) -> None:
    """Write the figures of a benchmark as JSON, with its problems where it may have some."""
    FOLDER.mkdir(exist_ok=True)
    content = {**surroundings(), "figures": [asdict(figure) for figure in figures]}
    content |= {"problems": list(problems)} if problems else {}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def surroundings() -> dict[str, Any]:
    """Return the moment, the commit, and the machine with its load."""
    words = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.strip() or None,
        "arguments": sys.argv[1:],
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
