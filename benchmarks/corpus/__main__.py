"""Make, judge and compare the corpus.

`python -m benchmarks.corpus make [--sample N] [--only TEXT]` records runs in the cache folder.
`judge` judges what isn't in its table yet, on two processes, and prints the acceptance table.
`compare [BEFORE] [AFTER]` lists what differs between the committed table and the judge's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import store
from benchmarks.corpus.acceptance import ROWS, Judged
from benchmarks.corpus.comparing import NAMED, differences
from benchmarks.corpus.judging import Batch, rows_of
from benchmarks.corpus.run import SIZE, Arrays, Run, digest_of
from benchmarks.corpus.sources import all_sources
from benchmarks.corpus.store import Corpus, Record, Row

BATCH = 10
"""Runs that a process judges at once: so many are lost where it is stopped."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; `compare` returns 1 where something differs."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False, markup=False, width=150)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes that judge
    corpus = Corpus(options.folder)
    with np.errstate(all="ignore"):
        if options.command == "make":
            return make(corpus, options, console)
        if options.command == "judge":
            return judged(corpus, options, console)
    return compared(options.before or store.COMMITTED, options.after or corpus.table, console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "judge", "compare"):
        command = commands.add_parser(name)
        command.add_argument("--folder", type=Path, help="in the place of the cache folder")
        if name == "compare":
            command.add_argument("before", type=Path, nargs="?", help="default: the committed one")
            command.add_argument("after", type=Path, nargs="?", help="default: what judge wrote")
            continue
        command.add_argument("--sample", type=int, default=SIZE, help=f"about N of {SIZE:,} runs")
        command.add_argument("--only", default="", help="only runs with this in their id")
        if name == "judge":
            command.add_argument("--jobs", type=int, default=2, help="processes")
            command.add_argument("--again", action="store_true", help="judge everything again")
            command.add_argument("--write", type=Path, help="write these rows into this table")
    return parser


def _is_chosen(run: Run, options: argparse.Namespace) -> bool:
    return run.place < options.sample / SIZE and options.only in run.id


def make(corpus: Corpus, options: argparse.Namespace, console: Console) -> int:
    """Record every chosen run that isn't there; say what was left out."""
    left_out: list[str] = []
    shards: dict[int, dict[Run, tuple[Record, Arrays]]] = defaultdict(dict)
    known = {record.run for shard in range(store.SHARDS) for record in corpus.records(shard)}
    count = 0
    for name, source in all_sources().items():
        began = time.monotonic()
        chosen = [run for run in source.runs(left_out) if _is_chosen(run, options)]
        missing = sorted({run for run in chosen if run not in known}, key=lambda run: run.place)
        recorded = 0
        for run in source.prepare(missing, left_out):
            try:
                outputs, label = source.make(run)
            except ValueError as problem:
                left_out.append(f"{run.source} {run.kernel}: {problem}")
                continue
            if not outputs:
                continue
            record = Record(run, label, digest_of(outputs), tuple(outputs))
            shards[corpus.shard_of(run)][run] = record, outputs
            recorded += 1
        count += recorded
        seconds = time.monotonic() - began
        console.print(f"{name}: {recorded:,} new of {len(chosen):,} runs, {seconds:.0f} s")
        for shard, fresh in shards.items():
            records = corpus.records(shard)
            stored = corpus.outputs(shard, records) if records else iter(())
            old = {record.run: (record, dict(a)) for record, a in zip(records, stored, strict=True)}
            corpus.write(shard, old | fresh)
        shards.clear()
    for line, times in Counter(left_out).items():
        console.print(f"left out: {line}{f' ({times} runs)' if times > 1 else ''}")
    return 0 if count or known else 2


def judged(corpus: Corpus, options: argparse.Namespace, console: Console) -> int:
    """Judge what isn't judged, write the table, and print the acceptance table."""
    if options.again:
        corpus.table.unlink(missing_ok=True)
    table = store.read_table(corpus.table)
    chosen: dict[str, Record] = {}
    batches: list[Batch] = []
    for shard in range(store.SHARDS):
        records = [r for r in corpus.records(shard) if _is_chosen(r.run, options)]
        chosen |= {record.run.id: record for record in records}
        missing = [record for record in records if _is_open(record, table.get(record.run.id))]
        batches += [
            (corpus.folder, shard, missing[start : start + BATCH])
            for start in range(0, len(missing), BATCH)
        ]
    began = time.monotonic()
    for number, rows in enumerate(rows_of(batches, options.jobs)):
        corpus.append(rows)
        table |= {row["id"]: row for row in rows}
        if number % 20 == 19:
            seconds = time.monotonic() - began
            done = f"judged {number + 1} of {len(batches)} batches, {seconds:.0f} s"
            print(done, file=sys.stderr, flush=True)
    table = {name: row for name, row in table.items() if name in chosen}
    times = os.times()
    cpu = times.user + times.children_user + times.system + times.children_system
    seconds = time.monotonic() - began
    console.print(f"{len(table):,} runs, {seconds:.0f} s, {cpu:.0f} s of one processor")
    if options.write is not None:
        store.write_table(options.write, store.read_table(options.write) | table)
    show(table, console)
    return 0 if table else 2


def _is_open(record: Record, row: Row | None) -> bool:
    """Return whether a run isn't judged, has other outputs by now, or made the judge raise."""
    return row is None or row["digest"] != record.digest or row["verdict"] == "error"


def show(table: dict[str, Row], console: Console) -> None:
    """Print the acceptance table."""
    runs = [Judged.of(row) for row in table.values()]
    shown = Table(title="Acceptance: one seed a run", title_justify="left", box=None)
    for heading in ("", "asked", "measured"):
        shown.add_column(heading)
    for row in ROWS:
        shown.add_row(row.title, row.request, row.measured(runs))
    console.print(shown)
    errors = [name for name, row in table.items() if row["verdict"] == "error"]
    for name in errors[:NAMED]:
        console.print(f"the judge raised: {name}: {table[name]['explanation']}")
    console.print(f"runs on which the judge raised: {len(errors)}")


def compared(before: Path, after: Path, console: Console) -> int:
    """Print what differs between two tables; return 1 where something does."""
    old, new = store.read_table(before), store.read_table(after)
    console.print(
        f"{len(old):,} runs before, {len(new):,} after, {len(old.keys() & new):,} in both"
    )
    groups = list(differences(old, new))
    for title, names in groups:
        console.print(f"{len(names):6,}  {title}")
        for name in _some(names):
            console.print(f"        {name}")
    return int(bool(groups))


def _some(names: Sequence[str]) -> Iterable[str]:
    return (*names[:NAMED], "...") if len(names) > NAMED else names


if __name__ == "__main__":
    sys.exit(main())
