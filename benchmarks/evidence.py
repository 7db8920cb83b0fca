"""Write the tables of docs/evidence.md: `python -m benchmarks.evidence`.

Speed is that of the last runs, which `.benchmarks` keeps. Of a benchmark with many figures, such as
the pages, those that come closest to their limits are shown. What the judge says of recorded
kernels is that of the committed table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from benchmarks.corpus import store
from benchmarks.corpus.acceptance import figures
from benchmarks.report import FOLDER, ROOT, Figure, number

TIMED: Final = ("speed", "ingest", "pages", "busy")
MOST: Final = 8
"""Figures of one benchmark that are shown."""
PAGE: Final = ROOT / "docs" / "evidence.md"
HEAD: Final = "| figure | requested | measured | |\n|---|---|---|---|\n"


def speed() -> str:
    """Return the table of the last runs, and where and when each ran."""
    rows, places = "", ""
    for name in TIMED:
        if (file := FOLDER / f"{name}.json").exists():
            run = json.loads(file.read_text("utf-8"))
            limited = [figure for row in run["figures"] if (figure := Figure(**row)).limits]
            closest = sorted(limited, key=lambda figure: figure.usage, reverse=True)[:MOST]
            rows += "".join(_rows(figure for figure in limited if figure in closest))
            places += f"- `{name}`: {_place(run)}\n"
    missing = "No figures of this version yet: `make bench` on an idle machine measures them.\n"
    return f"{HEAD}{rows}\n{places}" if rows else missing


def recorded() -> str:
    """Return the acceptance figures of the committed verdicts."""
    return HEAD + "".join(_rows(figures(store.read_table(store.COMMITTED).values())))


def _rows(chosen: Iterable[Figure]) -> Iterator[str]:
    for figure in chosen:
        missed = "" if figure.is_met else ": **missed**"
        measured = f"{number(figure.value)} {figure.unit}{missed}"
        yield f"| {figure.name} | {figure.limits} | {measured} | {figure.note} |\n"


def _place(run: dict[str, Any]) -> str:
    """Return the commit, the day and the machine of a run, and its arguments."""
    words = f"; `{' '.join(run['arguments'])}`" if run["arguments"] else ""
    machine = f"{run['processor']}, {run['cores']} cores, load {run['load']:.1f}"
    return f"{run['commit']}, {run['at'][:10]}, {machine}{words}"


def main() -> None:
    """Replace what stands between the marks of the page."""
    text = PAGE.read_text("utf-8")
    for mark, table in (("speed", speed()), ("recorded", recorded())):
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        _, end, after = rest.partition(f"<!-- /{mark} -->")
        text = f"{before}<!-- {mark} -->\n{table}{end}{after}"
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
