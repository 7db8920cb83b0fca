"""Make, judge and compare the corpus: `make corpus` does all three.

`python -m benchmarks.corpus make [--sample N] [--only TEXT]` records runs in the cache folder.
`judge` judges those that this judge hasn't judged yet, and prints the acceptance figures.
`compare` lists where its verdicts differ from the committed table.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict

import numpy as np

from benchmarks.corpus import store
from benchmarks.corpus.acceptance import figures
from benchmarks.corpus.comparing import differences
from benchmarks.corpus.judging import Batch, rows_of
from benchmarks.corpus.run import SIZE, Arrays, Run, digest_of
from benchmarks.corpus.sources import all_sources
from benchmarks.corpus.store import Record, Row
from benchmarks.report import report

BATCH = 10
"""Runs that a process judges at once: so many are lost where it is stopped."""
NAMED = 3
"""Runs of a group of differences that are named."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; `compare` returns 1 where something differs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("compare")
    for name in ("make", "judge"):
        command = commands.add_parser(name)
        command.add_argument("--sample", type=int, default=SIZE, help=f"about N of {SIZE:,} runs")
        command.add_argument("--only", default="", help="only runs with this in their id")
        if name == "judge":
            command.add_argument("--write", action="store_true", help="into the committed table")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes that judge
    if options.command == "compare":
        return compare()
    with np.errstate(all="ignore"):
        return make(options) if options.command == "make" else judge(options)


def _is_chosen(run: Run, options: argparse.Namespace) -> bool:
    return run.place < options.sample / SIZE and options.only in run.id


def make(options: argparse.Namespace) -> int:
    """Record every chosen run that isn't there; say what was left out."""
    known = {record.run for shard in range(store.SHARDS) for record in store.records(shard)}
    left_out: Counter[str] = Counter()
    for name, source in all_sources().items():
        began = time.monotonic()
        fresh: dict[int, dict[Record, Arrays]] = defaultdict(dict)
        chosen = {run for run in source.runs() if _is_chosen(run, options)}
        missing = sorted(chosen - known, key=lambda run: run.place)
        for run in source.prepare(missing):
            try:
                outputs, label = source.make(run)
            except ValueError as problem:
                left_out[f"{run.source} {run.kernel}: {problem}"] += 1
                continue
            record = Record(run, label, digest_of(outputs), tuple(outputs))
            fresh[store.shard_of(run)][record] = outputs
        for shard, recorded in fresh.items():
            store.add(shard, recorded)
        count, seconds = sum(map(len, fresh.values())), time.monotonic() - began
        print(f"{name}: {count:,} new of {len(chosen):,} runs, {seconds:.0f} s", flush=True)
    for line, times in left_out.items():
        print(f"left out: {line} ({times} runs)")
    return 0


def judge(options: argparse.Namespace) -> int:
    """Judge what isn't judged, and report the acceptance figures; 2 where nothing is recorded."""
    path = store.judged_table()
    table = store.read_table(path)
    chosen: set[str] = set()
    batches: list[Batch] = []
    for shard in range(store.SHARDS):
        records = [r for r in store.records(shard) if _is_chosen(r.run, options)]
        chosen |= {record.run.id for record in records}
        missing = [record for record in records if _is_open(record, table.get(record.run.id))]
        batches += [(shard, missing[at : at + BATCH]) for at in range(0, len(missing), BATCH)]
    began = time.monotonic()
    for number, rows in enumerate(rows_of(batches), 1):
        store.append(path, rows)
        table |= {row["id"]: row for row in rows}
        if number % 20 == 0:
            seconds = time.monotonic() - began
            print(f"judged {number} of {len(batches)} batches, {seconds:.0f} s", flush=True)
    table = {name: row for name, row in table.items() if name in chosen}
    if options.write:
        store.commit(table)
    raised = (f"{n}: {row['explanation']}" for n, row in table.items() if row["verdict"] == "error")
    report(
        "corpus", list(figures(table.values())), [f"the judge raised: {text}" for text in raised]
    )
    return 0 if table else 2


def _is_open(record: Record, row: Row | None) -> bool:
    """Return whether a run isn't judged, has other outputs by now, or made the judge raise."""
    return row is None or row["digest"] != record.digest or row["verdict"] == "error"


def compare() -> int:
    """Print what differs from the committed table; return 1 where something does."""
    before, after = store.read_table(store.COMMITTED), store.read_table(store.judged_table())
    both = len(before.keys() & after.keys())
    print(f"{len(before):,} runs before, {len(after):,} after, {both:,} in both")
    groups = list(differences(before, after))
    for title, names in groups:
        print(f"{len(names):6,}  {title}")
        print("".join(f"        {name}\n" for name in names[:NAMED]), end="")
    return int(bool(groups))


if __name__ == "__main__":
    sys.exit(main())
