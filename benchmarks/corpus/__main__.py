"""Record kernels, judge them, and compare with the committed verdicts: `make corpus`.

Runs that the cache folder lacks are recorded there, and judged unless this judge has judged them
before. Prints the acceptance figures, and where verdicts differ from the committed table: it then
exits with 1.
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
    """Return 1 where verdicts differ from the committed ones, 2 where there is no run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--sample", type=int, default=SIZE, help=f"about N of {SIZE:,} runs")
    parser.add_argument("--only", default="", help="only runs with this in their id")
    parser.add_argument(
        "--write", action="store_true", help="write the verdicts into the committed table"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes that judge
    with np.errstate(all="ignore"):
        record(options)
    table = judged(options)
    if options.write:
        store.commit(table)
    raised = [row for row in table.values() if row["verdict"] == "error"]
    problems = [f"the judge raised: {row['id']}: {row['explanation']}" for row in raised]
    report("corpus", list(figures(table.values())), problems)
    return int(differs(table)) if table else 2


def _is_chosen(run: Run, options: argparse.Namespace) -> bool:
    return run.place < options.sample / SIZE and options.only in run.id


def record(options: argparse.Namespace) -> None:
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


def judged(options: argparse.Namespace) -> dict[str, Row]:
    """Judge the chosen runs that aren't judged; return the rows of all."""
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
    return {name: row for name, row in table.items() if name in chosen}


def _is_open(record: Record, row: Row | None) -> bool:
    """Return whether a run isn't judged, has other outputs by now, or made the judge raise."""
    return row is None or row["digest"] != record.digest or row["verdict"] == "error"


def differs(table: dict[str, Row]) -> bool:
    """Print what differs from the committed table; return whether something does."""
    before = store.read_table(store.COMMITTED)
    both = len(before.keys() & table.keys())
    groups = differences(before, table)
    print(f"{both:,} of {len(table):,} runs are in the committed table; differences: {len(groups)}")
    for title, names in groups:
        print(f"{len(names):6,}  {title}")
        print("".join(f"        {name}\n" for name in names[:NAMED]), end="")
    return bool(groups)


if __name__ == "__main__":
    sys.exit(main())
