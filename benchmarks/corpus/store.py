"""The corpus on disk: shards of recorded runs in the cache folder, and tables of verdicts.

A shard holds the runs whose `place` lies in its part of 0..1, so a sample is the first shards.
`NNN.jsonl` has its records, `NNN.npz` their outputs.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.corpus.run import Arrays, Label, Run
from benchmarks.kernels.environments import cache_folder

SHARDS: Final = 200
COMMITTED: Final = Path(__file__).parent / "verdicts.jsonl.gz"
Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A recorded run: what made it, its label and the digest of its outputs."""

    run: Run
    label: Label
    digest: str
    outputs: tuple[str, ...]


def shard_of(run: Run) -> int:
    """Return the number of the shard that holds a run."""
    return int(run.place * SHARDS)


def records(shard: int) -> list[Record]:
    """Return the records of a shard, in the order of their places."""
    path = _path(f"{shard:03}.jsonl")
    rows = map(json.loads, path.read_text("utf-8").splitlines() if path.exists() else ())
    stored = [
        Record(Run(**row["run"]), Label(**row["label"]), row["digest"], tuple(row["outputs"]))
        for row in rows
    ]
    return sorted(stored, key=lambda record: record.run.place)


def outputs(shard: int, chosen: Iterable[Record]) -> Iterator[Arrays]:
    """Yield the outputs of records of a shard."""
    with np.load(_path(f"{shard:03}.npz")) as stored:
        for record in chosen:
            yield {name: stored[f"{record.run.id}|{name}"] for name in record.outputs}


def add(shard: int, fresh: Mapping[Record, Arrays]) -> None:
    """Add records with their outputs to a shard."""
    known = records(shard)
    complete = dict(zip(known, outputs(shard, known), strict=True)) if known else {}
    complete |= fresh
    arrays = {
        f"{record.run.id}|{name}": np.asarray(values, np.float32)
        for record, named in complete.items()
        for name, values in named.items()
    }
    temporary = _path(f"{os.getpid()}.npz")
    np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    temporary.replace(_path(f"{shard:03}.npz"))
    lines = "".join(json.dumps(asdict(record)) + "\n" for record in complete)
    temporary.write_text(lines, "utf-8")
    temporary.replace(_path(f"{shard:03}.jsonl"))  # last: it says that the outputs are there


def judged_table() -> Path:
    """Return the table that this judge adds to: an interrupted one goes on where it stopped."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parents[2] / "gonogo").rglob("*.py")):
        digest.update(path.read_bytes())
    return _path(f"verdicts-{digest.hexdigest()[:12]}.jsonl")


def append(table: Path, rows: Iterable[Row]) -> None:
    """Add rows to a table."""
    with table.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read_table(path: Path) -> dict[str, Row]:
    """Return the rows of a table by id; of two rows of a run the later one."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = (json.loads(line) for line in text.splitlines() if line.endswith("}"))
    return {row["id"]: row for row in rows}


def commit(rows: Mapping[str, Row]) -> None:
    """Write rows into the committed table, sorted by id; the same rows give the same bytes."""
    table = {**read_table(COMMITTED), **rows}
    lines = [json.dumps(table[k], separators=(",", ":"), sort_keys=True) for k in sorted(table)]
    data = "".join(f"{line}\n" for line in lines).encode()
    COMMITTED.write_bytes(gzip.compress(data, 9, mtime=0))


def _path(name: str) -> Path:
    folder = cache_folder() / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
