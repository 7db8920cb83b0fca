"""`python -m benchmarks.corpus`: runs are made, judged and compared; a changed verdict shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.corpus import sources, store
from benchmarks.corpus.__main__ import main
from benchmarks.corpus.run import Run
from benchmarks.corpus.sources.cases import Cases
from benchmarks.corpus.sources.emulator import Emulated
from benchmarks.corpus.store import Row

EMULATED = "layernorm_bw-33x50-normal-bf16"
RUNS = {
    Run("emulator", "correct", EMULATED, 0): ("right", "pass"),
    Run("emulator", "correct", EMULATED, 0, "double-subtract"): ("clear", "pass_by_tolerance"),
    Run("cases", "NumPy", "layernorm_fw-16x64-right-fp32", 0): ("right", "fail_by_tolerance"),
    Run("cases", "NumPy", "layernorm_fw-64x256-wrapped-fp32", 0, "wrapped"): ("localized", "fail"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for the runs above alone."""

    def listed(source: str) -> Sequence[Run]:
        return [run for run in RUNS if run.source == source]

    monkeypatch.setattr(Emulated, "runs", lambda self, left_out: iter(listed("emulator")))
    monkeypatch.setattr(Cases, "runs", lambda self, left_out: iter(listed("cases")))
    few = {"emulator": Emulated(), "cases": Cases()}
    monkeypatch.setattr(sources, "all_sources", lambda: few)
    monkeypatch.setattr("benchmarks.corpus.__main__.all_sources", lambda: few)
    return tmp_path


def test_runs_are_made_judged_and_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, table = ["--folder", str(folder)], folder / "table.jsonl.gz"
    assert main(["make", *place]) == 0
    assert main(["judge", *place, "--jobs", "1", "--write", str(table)]) == 0
    rows = store.read_table(table)
    assert {name: (row["size"], row["verdict"]) for name, row in rows.items()} == {
        run.id: expected for run, expected in RUNS.items()
    }
    assert "localized faults" in capsys.readouterr().out
    assert main(["compare", str(table), str(folder / "verdicts.jsonl")]) == 0

    changed = next(iter(rows))
    store.write_table(table, rows | {changed: rows[changed] | {"verdict": "fail"}})
    capsys.readouterr()
    assert main(["compare", str(table), str(folder / "verdicts.jsonl")]) == 1
    assert changed in capsys.readouterr().out


def test_a_corpus_that_is_made_again_has_the_same_bits(folder: Path) -> None:
    digests = []
    for name in ("first", "second"):
        assert main(["make", "--folder", str(folder / name)]) == 0
        corpus = store.Corpus(folder / name)
        records = [r for shard in range(store.SHARDS) for r in corpus.records(shard)]
        digests.append({record.run: record.digest for record in records})
    assert digests[0] == digests[1]
    assert digests[0].keys() == RUNS.keys()


def test_judging_goes_on_where_it_stopped(folder: Path) -> None:
    assert main(["make", "--folder", str(folder)]) == 0
    assert main(["judge", "--folder", str(folder), "--jobs", "1", "--only", "cases"]) == 0
    table = folder / "verdicts.jsonl"
    judged = [json.loads(line)["id"] for line in table.read_text("utf-8").splitlines()]
    assert main(["judge", "--folder", str(folder), "--jobs", "1"]) == 0
    again: list[Row] = [json.loads(line) for line in table.read_text("utf-8").splitlines()]
    assert [row["id"] for row in again][: len(judged)] == judged
    assert len(again) == len(RUNS)


def test_the_committed_table_is_sorted_and_holds_right_and_wrong_runs() -> None:
    rows = store.read_table(store.COMMITTED)
    assert list(rows) == sorted(rows)
    assert {"right", "clear", "small", "localized"} <= {row["size"] for row in rows.values()}
    assert store.COMMITTED.stat().st_size < 2**20
