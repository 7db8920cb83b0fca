"""Run rows in the interpreters of their libraries, and keep the outputs in the cache folder."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.kernels.cases import Arrays, Case
from benchmarks.kernels.environments import cache_folder, environment_of
from benchmarks.kernels.rows import FORMATS, Row

PROGRAM: Final = Path(__file__).parent / "library_program.py"
SETTINGS: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""One thread, no accelerator: the order of sums is the same on every machine with this library."""


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
    def request(self) -> dict[str, Any]:
        """Everything that the library's program reads."""
        gradients = [f"d{tensor}" for tensor in self.row.gradients]
        return {
            "code": self.code,
            "gradients": self.row.gradients,
            "outputs": gradients or self.case.kernel.outputs,
            "parameters": self.case.arguments,
            "format": self.case.form,
            "inputs": dict(self.case.inputs),
        }


@dataclass(frozen=True)
class Result:
    """Outputs in float64, and their formats."""

    outputs: Arrays
    formats: Mapping[str, str]


def results(runs: Iterable[Run]) -> list[tuple[Run, Result]]:
    """Return the results of runs, but for those that a library can't do, which are printed.

    All runs of a library are one process. Its outputs are kept by the program and what it reads.
    """
    done: list[tuple[Run, Result]] = []
    for library in FORMATS:
        chosen = [run for run in runs if run.row.library == library]
        environment = environment_of(library)
        if not chosen:
            continue
        if not environment.is_installed:
            print(f"left out {library}: it isn't installed; run `make libraries`")
            continue
        data = pickle.dumps([run.request for run in chosen])
        digest = hashlib.sha256(repr(environment.packages).encode() + PROGRAM.read_bytes() + data)
        place = cache_folder() / "kernels-outputs" / digest.hexdigest()[:32]
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.with_suffix(".runs").write_bytes(data)
            files = [str(place.with_suffix(".runs")), str(place)]
            words = [str(environment.python), str(PROGRAM), library, *files]
            subprocess.run(words, check=True, env={**os.environ, **SETTINGS})
        for run, answer in zip(chosen, pickle.loads(place.read_bytes()), strict=True):
            if isinstance(answer, str):
                print(f"not run: {library} {run.case}: {answer}")
                continue
            outputs = {name: values for name, (values, _) in answer.items()}
            formats = {name: form for name, (_, form) in answer.items()}
            done.append((run, Result(run.case.shaped(outputs), formats)))
    return done
