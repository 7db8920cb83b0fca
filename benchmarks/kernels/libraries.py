"""Run rows in the interpreters of their libraries."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.kernels.cases import Arrays, Case
from benchmarks.kernels.rows import Row
from benchmarks.libraries.environments import environment_of
from benchmarks.libraries.runs import SETTINGS

PROGRAM: Final = Path(__file__).parent / "library_program.py"


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


@dataclass(frozen=True)
class Result:
    """The outputs of a run in float64 and their formats, or why there are none."""

    outputs: Arrays
    formats: Mapping[str, str]
    problem: str | None


def results(library: str, runs: Sequence[Run]) -> list[Result]:
    """Return the result of each run, all of them by one process of the library."""
    environment = environment_of(library)
    if environment.absence:
        return [Result({}, {}, environment.absence)] * len(runs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files: dict[Case, Path] = {}
        manifest = []
        for number, run in enumerate(runs):
            if run.case not in files:
                files[run.case] = folder / f"input-{len(files)}.npz"
                np.savez(files[run.case], **run.case.inputs)  # type: ignore[arg-type]
            manifest.append(
                {
                    "code": run.code,
                    "gradients": run.row.gradients,
                    "outputs": run.case.definition.outputs
                    if not run.row.gradients
                    else [f"d{tensor}" for tensor in run.row.gradients],
                    "parameters": run.case.arguments,
                    "format": run.case.form,
                    "input": str(files[run.case]),
                    "output": str(folder / f"output-{number}.npz"),
                }
            )
        path, report = folder / "manifest.json", folder / "report.jsonl"
        path.write_text(json.dumps(manifest), "utf-8")
        words = [str(environment.python), str(PROGRAM), library, str(path), str(report)]
        subprocess.run(words, check=True, env={**os.environ, **SETTINGS})
        lines = [json.loads(line) for line in report.read_text("utf-8").splitlines()]
        return [
            Result(_read(folder / f"output-{number}.npz"), line["formats"], line["problem"])
            if line["problem"] is None
            else Result({}, {}, line["problem"])
            for number, line in enumerate(lines)
        ]


def _read(path: Path) -> Arrays:
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}
