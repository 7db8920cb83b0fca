"""Run rows in the interpreters of their libraries, and keep the outputs in the cache folder.

An output depends on the program, the library's version, the code and the case: judging again runs
no library.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.kernels.cases import Arrays, Case
from benchmarks.kernels.rows import Row
from benchmarks.libraries.environments import cache_folder, environment_of
from benchmarks.libraries.runs import SETTINGS

PROGRAM: Final = Path(__file__).parent / "library_program.py"
BATCH: Final = 200
"""Runs of one process."""


@dataclass(frozen=True)
class Run:
    """A row's code, or a wrong edit of it, on a case."""

    row: Row
    code: str
    case: Case

    @property
    def is_right(self) -> bool:
        """Whether the code isn't edited."""
        return self.code == self.row.code

    @property
    def data(self) -> dict[str, Any]:
        """What the library's program reads, without the places of tensors."""
        gradients = [f"d{tensor}" for tensor in self.row.gradients]
        return {
            "code": self.code,
            "gradients": self.row.gradients,
            "outputs": gradients or self.case.definition.outputs,
            "parameters": self.case.arguments,
            "format": self.case.form,
        }

    @property
    def place(self) -> Path:
        """The file of its outputs; beside it, a file that says their formats or the problem."""
        environment = environment_of(self.row.library)
        digest = hashlib.sha256(PROGRAM.read_bytes())
        digest.update(json.dumps([environment.packages, self.data]).encode())
        for name, values in self.case.inputs.items():
            digest.update(name.encode() + values.tobytes() + repr(values.shape).encode())
        return cache_folder() / "kernels-outputs" / f"{digest.hexdigest()[:32]}.npz"


@dataclass(frozen=True)
class Result:
    """The outputs of a run in float64 and their formats, or why there are none."""

    outputs: Arrays
    formats: Mapping[str, str]
    problem: str | None = None


def results(library: str, runs: Sequence[Run]) -> list[Result]:
    """Return the result of each run of a library; those that aren't in the cache are run."""
    if absence := environment_of(library).absence:
        return [Result({}, {}, absence)] * len(runs)
    places = [run.place for run in runs]
    missing = [at for at, place in enumerate(places) if not _report(place).exists()]
    for start in range(0, len(missing), BATCH):
        part = missing[start : start + BATCH]
        _produce(library, [runs[at] for at in part], [places[at] for at in part])
    return [_read(place) for place in places]


def _produce(library: str, runs: Sequence[Run], places: Sequence[Path]) -> None:
    """Run a process of the library, which writes outputs to their places."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files: dict[Case, Path] = {}
        manifest = []
        for run, place in zip(runs, places, strict=True):
            if run.case not in files:
                files[run.case] = folder / f"input-{len(files)}.npz"
                np.savez(files[run.case], **run.case.inputs)  # type: ignore[arg-type]
            place.parent.mkdir(parents=True, exist_ok=True)
            manifest.append({**run.data, "input": str(files[run.case]), "output": str(place)})
        path, report = folder / "manifest.json", folder / "report.jsonl"
        path.write_text(json.dumps(manifest), "utf-8")
        words = [str(environment_of(library).python), str(PROGRAM), library, str(path), str(report)]
        subprocess.run(words, check=True, env={**os.environ, **SETTINGS})
        for place, line in zip(places, report.read_text("utf-8").splitlines(), strict=True):
            _report(place).write_text(line, "utf-8")


def _report(place: Path) -> Path:
    return place.with_suffix(".json")


def _read(place: Path) -> Result:
    line = json.loads(_report(place).read_text("utf-8"))
    if line["problem"] is not None:
        return Result({}, {}, line["problem"])
    with np.load(place) as stored:
        outputs = {name: stored[name] for name in stored.files}
    return Result(outputs, line["formats"])
