"""The corpus on disk: shards of recorded runs in the cache folder, and tables of verdicts.

A shard holds the runs whose `place` lies in its part of 0..1, so a sample is the first shards.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.corpus.run import Arrays, Label, Run

SHARDS: Final = 200
COMMITTED: Final = Path(__file__).parent / "verdicts.jsonl.gz"
Row = dict[str, Any]


def cache_folder() -> Path:
    """Return the corpus' folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gonogo" / "corpus"


@dataclass(frozen=True)
class Record:
    """A recorded run: what made it, its label and the digest of its outputs."""

    run: Run
    label: Label
    digest: str
    outputs: tuple[str, ...]


class Corpus:
    """A folder of shards: `NNN.jsonl` has the records, `NNN.npz` the outputs."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        self.table = self.folder / "verdicts.jsonl"

    @staticmethod
    def shard_of(run: Run) -> int:
        """Return the number of the shard that holds a run."""
        return int(run.place * SHARDS)

    def records(self, shard: int) -> list[Record]:
        """Return the records of a shard, in the order of their places."""
        path = self.folder / f"{shard:03}.jsonl"
        if not path.exists():
            return []
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        records = [
            Record(
                Run(**row["run"]),
                Label(**row["label"]),
                row["digest"],
                tuple(row["outputs"]),
            )
            for row in rows
        ]
        return sorted(records, key=lambda record: record.run.place)

    def write(self, shard: int, records: Mapping[Run, tuple[Record, Arrays]]) -> None:
        """Store a shard, in the place of what was there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            f"{record.run.id}|{name}": np.asarray(values, np.float32)
            for record, outputs in records.values()
            for name, values in outputs.items()
        }
        for suffix in (".npz", ".jsonl"):  # the records last: they say that the outputs are there
            path = self.folder / f"{shard:03}{suffix}"
            temporary = path.with_name(f"{os.getpid()}-{path.name}")
            if suffix == ".npz":
                np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
            else:
                lines = [json.dumps(asdict(record)) for record, _ in records.values()]
                temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            temporary.replace(path)

    def outputs(self, shard: int, records: Iterable[Record]) -> Iterator[Arrays]:
        """Yield the outputs of records of a shard."""
        with np.load(self.folder / f"{shard:03}.npz") as stored:
            for record in records:
                yield {name: stored[f"{record.run.id}|{name}"] for name in record.outputs}

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows to the table: an interrupted judge goes on where it stopped."""
        with self.table.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def read_table(path: Path) -> dict[str, Row]:
    """Return the rows of a table by id; of two rows of a run the later one."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = (json.loads(line) for line in text.splitlines() if line.endswith("}"))
    return {row["id"]: row for row in rows}


def write_table(path: Path, rows: Mapping[str, Row]) -> None:
    """Write a table sorted by id; the same rows give the same bytes."""
    lines = [json.dumps(rows[name], separators=(",", ":"), sort_keys=True) for name in sorted(rows)]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0))
