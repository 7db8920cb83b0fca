"""Judge recorded runs in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.corpus.answers import row_of
from benchmarks.corpus.judging import judge
from benchmarks.corpus.sources import all_sources
from benchmarks.corpus.store import Corpus, Record, Row

Batch = tuple[Path, int, list[Record]]
"""The corpus' folder, a shard, and some of its records."""


def rows_of(batches: Sequence[Batch], jobs: int) -> Iterator[list[Row]]:
    """Yield the rows of each batch, in order, from so many processes."""
    if jobs <= 1:
        yield from map(judge_batch, batches)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(judge_batch, batches)


def judge_batch(batch: Batch) -> list[Row]:
    """Return the rows of a few runs of a shard; a judge that raises is a verdict of its own."""
    folder, shard, records = batch
    sources = all_sources()
    rows = []
    for record, outputs in zip(records, Corpus(folder).outputs(shard, records), strict=True):
        label = record.label
        row: Row = {
            "id": record.run.id,
            "digest": record.digest,
            "size": label.size,
            "group": label.group,
            "fault": label.term,
        }
        try:
            question = sources[record.run.source].question(record.run)
            row |= row_of(label, judge(question, outputs, label))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:200]
            row |= {"verdict": "error", "explanation": problem, "green": True, "term": None}
            row |= {"listed": False, "outputs": {}}
        rows.append(row)
    return rows
