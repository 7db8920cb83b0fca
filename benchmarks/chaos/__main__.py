"""Break a whole service at random, and check that it has lost nothing: `make chaos`.

Real processes in production's form (API, background, workers of two hosts) on a private PostgreSQL
or SQLite and a private Redis or Valkey. Two faults act at a time. The schedule comes from a seed,
which is printed; the same seed draws the same faults in the same order. Exits 1 where anything is
wrong, and then keeps the folder with the logs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.chaos import checks, faults
from benchmarks.chaos.acts import Chaos
from benchmarks.chaos.faults import FAULTS, Fault
from benchmarks.chaos.load import Load
from benchmarks.chaos.post import Recorder
from benchmarks.chaos.site import Site
from benchmarks.chaos.stalls import StallWatch

LANES = 2
"""Faults that act at the same time."""
PAUSE_S = (0.5, 4.0)
"""Between two faults of a lane."""
SHOWN = 20
"""Problems that are printed; all are in the JSON."""


@dataclass(frozen=True)
class Plan:
    """The database, length, seed and faults of a run."""

    database: str
    seconds: float
    seed: int
    scale: float
    faults: Sequence[Fault]
    is_forked: bool = False


class Lane(threading.Thread):
    """Does one fault after another until the time is up."""

    def __init__(
        self, number: int, plan: Plan, site: Site, recorder: Recorder, until: float
    ) -> None:
        super().__init__(name=f"lane-{number}", daemon=True)
        self._chance = random.Random(f"{plan.seed}/{number}")
        # one of its own: how often a fault draws depends on what it meets
        acting = random.Random(f"{plan.seed}/{number}/acts")
        self._plan, self._until, self._site = plan, until, site
        self._chaos = Chaos(site, recorder, acting, plan.scale)
        self._began = time.monotonic()
        self.done: Counter[str] = Counter()
        self.log: list[tuple[float, float, str]] = []
        """Each fault: when it began and ended, in seconds since the start."""

    def run(self) -> None:
        """Do faults; one that breaks is a problem of the run."""
        weights = [fault.weight for fault in self._plan.faults]
        while time.monotonic() < self._until:
            time.sleep(self._chance.uniform(*PAUSE_S) * self._plan.scale)
            fault = self._chance.choices(self._plan.faults, weights)[0]
            began = time.monotonic()
            try:
                trouble = faults.run(self._chaos, fault)
            except Exception as problem:
                self._site.problems.append(f"the fault {fault.name!r} broke: {problem!r:.300}")
                continue
            if trouble is None:
                self.done[fault.name] += 1
                now = time.monotonic()
                self.log.append((began - self._began, now - self._began, fault.name))


def run(plan: Plan, folder: Path, say: Any) -> dict[str, Any]:
    """Do one run; return its figures."""
    site = Site(folder, plan.database, say, is_forked=plan.is_forked)
    try:
        site.start()
        load, recorder, stalls = Load(site, plan.seed), Recorder(site), StallWatch(site)
        for thread in (recorder, stalls, load):
            thread.start()
        until = time.monotonic() + plan.seconds
        lanes = [Lane(number, plan, site, recorder, until) for number in range(LANES)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            while lane.is_alive():
                lane.join(0.5)
                site.restart_ended()
        load.close()
        say("the faults are over; checking")
        began = time.monotonic()
        checks.wait_for_the_end(load)
        ended_after = time.monotonic() - began
        stalls.close()
        recorder.close()
        result = checks.all_of_them(site, load)
    finally:
        site.close()
    done: Counter[str] = sum((lane.done for lane in lanes), Counter())
    return {
        "database": plan.database,
        "seconds": plan.seconds,
        "seed": plan.seed,
        "faults": dict(sorted(done.items())),
        "log": sorted(entry for lane in lanes for entry in lane.log),
        "jobs": dict(result.jobs),
        "seeds": result.seeds,
        "verdicts": dict(result.verdicts),
        "without_numbers": dict(result.given_up.most_common()),
        "webhooks": result.deliveries,
        "requests": load.requests,
        "requests_sent_again": load.retries,
        "lost": result.lost,
        "doubled": result.doubled,
        "longest_stall_s": round(stalls.longest_s, 1),
        "longest_stall_at_s": round(stalls.longest_at, 1),
        "ended_after_s": round(ended_after, 1),
        "ended_by_themselves": dict(site.ended),
        "problems": result.problems,
    }


def show(console: Console, figures: dict[str, Any]) -> None:
    """Print the figures of a run."""
    table = Table(title=f"chaos on {figures['database']}, seed {figures['seed']}")
    table.add_column("figure")
    table.add_column("value", overflow="fold")
    kinds = ", ".join(f"{name} {count}" for name, count in figures["faults"].items())
    verdicts = ", ".join(f"{name} {count}" for name, count in sorted(figures["verdicts"].items()))
    jobs = ", ".join(f"{name} {count}" for name, count in sorted(figures["jobs"].items()))
    rows = {
        "faults": f"{sum(figures['faults'].values())} in {figures['seconds']:.0f} s: {kinds}",
        "jobs": f"{sum(figures['jobs'].values())}: {jobs}",
        "seeds": f"{figures['seeds']:,}: {verdicts}",
        "without numbers": "\n".join(
            f"{count} {reason}" for reason, count in figures["without_numbers"].items()
        ),
        "webhooks": str(figures["webhooks"]),
        "submissions": f"{figures['requests']}, {figures['requests_sent_again']} sent again",
        "ended by themselves": "\n".join(
            f"{count} {words}" for words, count in sorted(figures["ended_by_themselves"].items())
        ),
        "lost": str(figures["lost"]),
        "doubled": str(figures["doubled"]),
        "longest stall": (
            f"{figures['longest_stall_s']} s, {figures['longest_stall_at_s']:.0f} s after the start"
        ),
        "all ended": f"{figures['ended_after_s']} s after the last fault",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    for problem in figures["problems"][:SHOWN]:
        console.print(f"WRONG: {problem}", style="bold red", markup=False)
    if (more := len(figures["problems"]) - SHOWN) > 0:
        console.print(f"and {more} more")


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def parse(words: list[str] | None) -> tuple[list[Plan], bool]:
    """Return the runs that the command line asks for, and whether to print JSON."""
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
        "--scale", type=float, default=1.0, help="shortens the times for which faults are held"
    )
    parser.add_argument(
        "--faults", default="", help=f"comma-separated, some of: {', '.join(FAULTS)}; default: all"
    )
    parser.add_argument(
        "--forked",
        action="store_true",
        help="fork processes from one that has imported their modules: a fifth of the work, for"
        " the tests",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(words)
    names = [name.strip() for name in given.faults.split(",") if name.strip()] or list(FAULTS)
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"no fault {', '.join(unknown)}: choose from {', '.join(FAULTS)}")
    seed = random.SystemRandom().randrange(2**31) if given.seed is None else given.seed
    databases = ["postgres", "sqlite"] if given.database == "both" else [given.database]
    plans = []
    for database in databases:
        chosen = [FAULTS[name] for name in names if database in FAULTS[name].databases]
        if not chosen:
            parser.error(f"none of these faults applies to {database}")
        plans.append(Plan(database, given.seconds, seed, given.scale, chosen, given.forked))
    return plans, given.json


def main(words: list[str] | None = None) -> int:
    """Run on each database; return 1 where anything is wrong."""
    plans, as_json = parse(words)
    signal.signal(signal.SIGTERM, _end)
    console = Console(highlight=False, stderr=as_json, width=None if sys.stdout.isatty() else 140)
    failed = False
    for plan in plans:
        console.print(f"chaos on {plan.database} for {plan.seconds:.0f} s; --seed {plan.seed}")
        # a short path: sockets and locks lie in it
        folder = Path(tempfile.mkdtemp(prefix="gonogo-chaos-", dir="/tmp"))
        try:
            figures = run(plan, folder, console.print)
        except BaseException:
            console.print(f"logs: {folder}")
            raise
        if as_json:
            print(json.dumps(figures), flush=True)
        else:
            show(console, figures)
        if figures["problems"]:
            failed = True
            (folder / "figures.json").write_text(json.dumps(figures, indent=1))
            console.print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
