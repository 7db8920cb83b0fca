"""`gonogo rollups rebuild`: recompute the sums that pages show, while everything runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from gonogo.cli.kit.groups import group
from gonogo.errors import JobError

if TYPE_CHECKING:
    from gonogo_service.results.rollups.rebuild import Progress as Done

app = group("Compute the sums that pages show.")


@app.command()
def rebuild(
    test: str | None = typer.Option(None, "--test", help="Key of one test; without it, of all."),
    as_json: bool = typer.Option(
        False, "--json", help="Print JSON: one line of progress a second, then the result."
    ),
) -> None:
    """Recompute the roll-ups from the stored rows, when in doubt.

    Works in small transactions beside a running service. Pages show a test's old sums until the new
    ones are complete. It can be stopped and started again at any time.
    """
    import time

    from gonogo.cli.kit import show
    from gonogo_service.cli.operate.database import engine
    from gonogo_service.kit.database.engine import reading
    from gonogo_service.results.rollups import rebuild as rollup_rebuild
    from gonogo_service.tests import test_specs

    start = told_at = time.monotonic()
    with engine() as database, show.progress(show.console(stderr=True)) as bars:
        if test is not None:
            with reading(database) as session:
                if test_specs.get(session, test) is None:
                    raise JobError(f"no test {test}")
        bar = bars.add_task("roll-ups", total=None, note="")

        def tell(progress: Done) -> None:
            nonlocal told_at
            where = (
                ""
                if progress.unit is None
                else f"{progress.unit.test_key} on {progress.unit.build}"
            )
            bars.update(
                bar,
                total=progress.total,
                completed=progress.units,
                note=f"{progress.seeds:,} seeds {where}",
            )
            if as_json and progress.unit is not None and time.monotonic() - told_at >= 1:
                told_at = time.monotonic()
                show.print_json({"progress": asdict(progress)})

        done = rollup_rebuild.rebuild(database, test_key=test, on_progress=tell)
    seconds = time.monotonic() - start
    if as_json:
        show.print_json({"units": done.units, "seeds": done.seeds, "seconds": round(seconds, 3)})
    else:
        print(
            f"{done.seeds:,} seeds of {done.units:,} tests on a build recounted in {seconds:.1f} s"
        )
