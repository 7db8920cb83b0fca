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
from argparse import Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from benchmarks.chaos import checks, faults
from benchmarks.chaos.faults import FAULTS, Chaos, Recorder
from benchmarks.chaos.load import Load
from benchmarks.chaos.site import Site
from benchmarks.report import Figure, report

LANES, PAUSE_S = 2, (0.5, 4.0)
"""Faults that act at the same time, and the pause between two of a lane."""
USUAL_S, FEWEST = 100.0, 5
"""A shorter run holds its faults for less time; with fewer faults or jobs it says nothing."""


def break_things(chance: random.Random, options: Namespace, chaos: Chaos, done: list[str]) -> None:
    """Do one fault after another until the time is up; note the names of those that happened."""
    began, site = time.monotonic(), chaos.site
    weights = [FAULTS[name].weight for name in options.faults]
    while time.monotonic() < began + options.seconds:
        time.sleep(chance.uniform(*PAUSE_S) * chaos.scale)
        name, since = chance.choices(options.faults, weights)[0], time.monotonic() - began
        try:
            done += [name] if faults.do(chaos, FAULTS[name]) else []
        except Exception as problem:
            site.problems.append(f"the fault {name!r} broke: {problem!r:.300}")
        with (site.folder / "faults.log").open("a") as log:
            log.write(f"{since:6.1f} to {time.monotonic() - began:6.1f} s: {name}\n")


def run(database: str, options: Namespace, folder: Path) -> int:
    """Do one run, and report its figures; return 1 where anything is wrong."""
    site, scale = Site(folder, database), min(1.0, options.seconds / USUAL_S)
    try:
        site.start()
        load, recorder = Load(site, options.seed), Recorder(site)
        recorder.start()
        load.start()
        happened: list[str] = []
        with ThreadPoolExecutor(LANES) as threads:
            lanes = []
            for number in range(LANES):
                # two sources of chance: how often a fault draws depends on what it meets
                chance, acting = (random.Random(f"{options.seed}/{number}/{n}") for n in range(2))
                chaos = Chaos(site, recorder, acting, scale)
                lanes.append(threads.submit(break_things, chance, options, chaos, happened))
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
    again = f"{load.retries} sent again"
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
        Figure("longest time without a seed", load.longest_s, "s"),
        Figure("the last job's end, after the last fault", ended_s, "s"),
    ]
    return report(f"chaos-{database}", figures, result.problems)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def parsed(words: list[str] | None) -> Namespace:
    """Return the options of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("benchmarks.chaos", description=__doc__, formatter_class=form)
    parser.add_argument("--seconds", type=float, default=600.0, help="of faults; default 600")
    seed = random.SystemRandom().randrange(2**31)
    parser.add_argument("--seed", type=int, default=seed, help="of the schedule; default: random")
    parser.add_argument("--database", choices=["postgres", "sqlite"], help="default: both")
    parser.add_argument("--faults", help=f"separated by commas, of {', '.join(FAULTS)}")
    options = parser.parse_args(words)
    options.faults = options.faults.split(",") if options.faults else list(FAULTS)
    if unknown := [name for name in options.faults if name not in FAULTS]:
        parser.error(f"no fault {', '.join(unknown)}: choose from {', '.join(FAULTS)}")
    return options


def main(words: list[str] | None = None) -> int:
    """Run on each database; return 1 where anything is wrong."""
    signal.signal(signal.SIGTERM, _end)
    options, failed = parsed(words), False
    for database in [options.database] if options.database else ["postgres", "sqlite"]:
        chosen = [name for name in options.faults if database in FAULTS[name].databases]
        print(f"chaos on {database} for {options.seconds:g} s; --seed {options.seed}", flush=True)
        # a short path: sockets and locks lie in it
        folder, is_right = Path(tempfile.mkdtemp(prefix="gonogo-chaos-", dir="/tmp")), False
        try:
            is_right = run(database, Namespace(**vars(options) | {"faults": chosen}), folder) == 0
        finally:
            if is_right:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                print(f"logs: {folder}", flush=True)
        failed |= not is_right
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
