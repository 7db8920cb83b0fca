"""Break a whole service at random, and check that it has lost nothing: `make chaos`.

Real processes in production's form (API, background, workers of two hosts) on a private PostgreSQL
or SQLite and a private Redis or Valkey. Two faults act at a time. The schedule comes from a seed,
which is printed; the same seed draws the same faults in the same order. Exits 1 where anything is
wrong, and then keeps the folder with the logs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos import checks, faults
from benchmarks.chaos.faults import FAULTS, Chaos
from benchmarks.chaos.load import Load
from benchmarks.chaos.post import Recorder
from benchmarks.chaos.site import Site
from benchmarks.report import Figure, report

LANES = 2
"""Faults that act at the same time."""
PAUSE_S = (0.5, 4.0)
"""Between two faults of a lane."""
USUAL_S = 100.0
"""A shorter run holds its faults for less time, in proportion."""
FEWEST = 5
"""Faults and jobs below which a run says nothing."""


@dataclass(frozen=True)
class Plan:
    """The database, length, seed and names of faults of a run."""

    database: str
    seconds: float
    seed: int
    faults: Sequence[str]


def break_things(number: int, plan: Plan, site: Site, recorder: Recorder, done: list[str]) -> None:
    """Do one fault after another until the time is up; note the names of those that happened."""
    chance = random.Random(f"{plan.seed}/{number}")
    # one of its own: how often a fault draws depends on what it meets
    acting = random.Random(f"{plan.seed}/{number}/acts")
    chaos = Chaos(site, recorder, acting, min(1.0, plan.seconds / USUAL_S))
    began, weights = time.monotonic(), [FAULTS[name].weight for name in plan.faults]
    while time.monotonic() < began + plan.seconds:
        time.sleep(chance.uniform(*PAUSE_S) * chaos.scale)
        name, since = chance.choices(plan.faults, weights)[0], time.monotonic() - began
        try:
            done += [name] if faults.do(chaos, FAULTS[name]) else []
        except Exception as problem:
            site.problems.append(f"the fault {name!r} broke: {problem!r:.300}")
        with (site.folder / "faults.log").open("a") as log:
            log.write(f"{since:6.1f} to {time.monotonic() - began:6.1f} s: {name}\n")


def run(plan: Plan, folder: Path) -> int:
    """Do one run, and report its figures; return 1 where anything is wrong."""
    site = Site(folder, plan.database)
    try:
        site.start()
        load, recorder = Load(site, plan.seed), Recorder(site)
        recorder.start()
        load.start()
        happened: list[str] = []
        with ThreadPoolExecutor(LANES) as threads:
            lanes = [
                threads.submit(break_things, number, plan, site, recorder, happened)
                for number in range(LANES)
            ]
            while wait(lanes, 0.5).not_done:
                site.restart_ended()
        print("the faults are over; checking", flush=True)
        began = time.monotonic()
        load.close()
        ended_s = time.monotonic() - began
        recorder.close()
        result = checks.check(site, load)
    finally:
        site.close()
    done = Counter(happened)
    seeds, empty = result.verdicts.total(), result.reasons
    again, at = f"{load.retries} sent again", f"{load.longest_at:.0f} s after the start"
    figures = [
        Figure("faults", done.total(), "", least=FEWEST, note=_counts(done)),
        Figure("jobs", result.jobs.total(), "", least=FEWEST, note=_counts(result.jobs)),
        Figure("seeds", seeds, "", note=_counts(result.verdicts)),
        Figure("of these, without numbers", empty.total(), "", note=_counts(empty)),
        Figure("webhooks", result.deliveries, ""),
        Figure("requests that change something", load.requests, "", note=again),
        Figure("processes that ended", site.ended.total(), "", note=_counts(site.ended)),
        Figure("seeds lost", result.lost, "", most=0),
        Figure("seeds or jobs doubled", result.doubled, "", most=0),
        Figure("longest time without a seed", load.longest_s, "s", note=at),
        Figure("the last job's end, after the last fault", ended_s, "s"),
    ]
    return report(f"chaos-{plan.database}", figures, result.problems)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def plans(words: list[str] | None) -> list[Plan]:
    """Return the runs that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="of faults; default 600")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule; default: random")
    parser.add_argument(
        "--database", choices=["postgres", "sqlite", "both"], default="both", help="default: both"
    )
    parser.add_argument(
        "--faults", default="", help=f"comma-separated, some of: {', '.join(FAULTS)}; default: all"
    )
    given = parser.parse_args(words)
    names = [name.strip() for name in given.faults.split(",") if name.strip()] or list(FAULTS)
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"no fault {', '.join(unknown)}: choose from {', '.join(FAULTS)}")
    seed = random.SystemRandom().randrange(2**31) if given.seed is None else given.seed
    chosen = []
    for database in ["postgres", "sqlite"] if given.database == "both" else [given.database]:
        there = [name for name in names if database in FAULTS[name].databases]
        if not there:
            parser.error(f"none of these faults applies to {database}")
        chosen.append(Plan(database, given.seconds, seed, there))
    return chosen


def main(words: list[str] | None = None) -> int:
    """Run on each database; return 1 where anything is wrong."""
    signal.signal(signal.SIGTERM, _end)
    failed = False
    for plan in plans(words):
        seconds = f"{plan.seconds:.0f} s"
        print(f"chaos on {plan.database} for {seconds}; --seed {plan.seed}", flush=True)
        # a short path: sockets and locks lie in it
        folder = Path(tempfile.mkdtemp(prefix="gonogo-chaos-", dir="/tmp"))
        is_right = False
        try:
            is_right = run(plan, folder) == 0
        finally:
            if is_right:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                print(f"logs: {folder}", flush=True)
        failed |= not is_right
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
