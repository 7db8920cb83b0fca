"""Run the kernels of libraries in their interpreters, and cache their outputs.

A cached output depends on the program's source, the versions, the kernel and the bytes of its
inputs. So judging again runs no library. The folder of a GPU's outputs also holds the list of its
kernels: copied into the cache folder of a machine without a GPU, it can be judged there.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.libraries.cases import Case, Tensors, inputs, inputs_digest
from benchmarks.libraries.environments import (
    PROGRAMS,
    Environment,
    cache_folder,
    environment_of,
    gpu,
)

SETTINGS: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TRITON_INTERPRET": "1",
    "DEV": "CPU",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""One thread, no accelerator: the order of sums is the same on every machine with this library.
Environments on a GPU override some."""
DEADLINE_S: Final = 1800.0
"""For one process; the slowest manifest took 260 s."""
BATCH: Final = 400
"""Runs per process: imports are paid once, and inputs take little space."""
GPU_BATCH: Final = 40
"""Runs per process on a GPU: compilers take most of the time, and processes share the GPU."""


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel that a library's program lists."""

    library: str
    name: str
    kind: str
    formats: tuple[str, ...]
    epsilon: float | None
    """The epsilon of a kernel that has its own; None: it takes the case's."""

    def runs_on(self, case: Case) -> bool:
        """Return whether the kernel computes the case's function in its format."""
        return self.kind == case.kind and case.format in self.formats

    def case_of(self, case: Case) -> Case:
        """Return the case with the epsilon that the kernel uses."""
        return case if self.epsilon is None else replace(case, fixed_epsilon=self.epsilon)


@dataclass(frozen=True)
class Listing:
    """The kernels of a library, and the versions that run them."""

    versions: Mapping[str, str]
    kernels: tuple[LibraryKernel, ...]


@dataclass(frozen=True)
class Run:
    """A kernel on a seed of a case."""

    library: str
    kernel: str
    case: Case
    seed: int


@cache
def listing(library: str) -> Listing:
    """Return the kernels of a library that is installed, or that ran on the GPU of another machine.

    Raises RuntimeError with the reason why it is left out, or with the program's error.
    """
    environment = environment_of(library)
    recorded = _folder_of(library) / "listing.json"
    absence = environment.absence
    if absence is None:
        ended = _child(environment, ["--list"])
        if ended.returncode:
            error = _last_line(ended.stderr) or f"exit code {ended.returncode}"
            raise RuntimeError(f"its program fails: {error}")
        row = json.loads(ended.stdout.splitlines()[-1])
        if environment.needs_gpu:
            row["versions"]["GPU"] = gpu()
            recorded.parent.mkdir(parents=True, exist_ok=True)
            recorded.write_text(json.dumps(row), "utf-8")
    elif environment.needs_gpu and recorded.exists():
        row = json.loads(recorded.read_text("utf-8"))
    else:
        raise RuntimeError(absence)
    kernels = tuple(
        LibraryKernel(
            library, fields["name"], fields["kind"], tuple(fields["formats"]), fields["epsilon"]
        )
        for fields in row["kernels"]
    )
    return Listing(row["versions"], kernels)


def produce(runs: Iterable[Run], jobs: int = 1) -> dict[Run, Path | str]:
    """Run what isn't in the cache; return the file of each run's outputs, or its problem."""
    results: dict[Run, Path | str] = {}
    missing: dict[str, list[Run]] = {}
    for run in runs:
        stored = cached(run)
        if stored is None:
            missing.setdefault(run.library, []).append(run)
        else:
            results[run] = stored
    batches = []
    for library, rows in missing.items():
        environment = environment_of(library)
        if environment.needs_gpu and environment.absence is not None:
            results |= dict.fromkeys(rows, f"not recorded, and {environment.absence}")
            continue
        size = GPU_BATCH if environment.needs_gpu else BATCH
        batches += [rows[start : start + size] for start in range(0, len(rows), size)]
    with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        for number, part in enumerate(pool.map(_run_batch, batches)):
            results.update(part)
            count = sum(len(batch) for batch in batches[: number + 1])
            print(f"ran {count} of {sum(map(len, batches))} runs", file=sys.stderr, flush=True)
    return results


def cached(run: Run) -> Path | None:
    """Return the stored outputs of a run, or None. Problems aren't stored: they may pass."""
    path = _path_of(run)
    return path if path.exists() else None


def load(path: Path) -> Tensors:
    """Return stored outputs."""
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def _run_batch(runs: Sequence[Run]) -> dict[Run, Path | str]:
    """Run kernels of one library; a kernel that ends the process is a problem of its run alone."""
    environment = environment_of(runs[0].library)
    results: dict[Run, Path | str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rest = list(runs)
        while rest:
            lines, ending = _run_manifest(environment, rest, folder)
            for run, line in zip(rest, lines, strict=False):
                results[run] = _stored(run, folder / line["output"], line["problem"])
            dead = rest[len(lines) : len(lines) + 1]
            for run in dead:
                results[run] = _stored(run, folder, f"the process ended: {ending}")
            rest = rest[len(lines) + 1 :]
    return results


def _run_manifest(
    environment: Environment, runs: Sequence[Run], folder: Path
) -> tuple[list[dict[str, Any]], str]:
    """Return the program's lines, and how it ended."""
    manifest = []
    for number, run in enumerate(runs):
        source = folder / f"{run.case.name}-{run.seed}.npz"
        if not source.exists():
            np.savez(source, **inputs(run.case, run.seed))  # type: ignore[arg-type]
        manifest.append(
            {
                "kernel": run.kernel,
                "kind": run.case.kind,
                "format": run.case.format,
                "epsilon": run.case.epsilon,
                "groups": run.case.groups,
                "input": str(source),
                "output": str(folder / f"output-{number}.npz"),
            }
        )
    path, report = folder / "manifest.json", folder / "report.jsonl"
    path.write_text(json.dumps(manifest), "utf-8")
    report.write_text("", "utf-8")
    try:
        ended = _child(environment, [str(path), str(report)])
        ending = _last_line(ended.stderr) or f"exit code {ended.returncode}"
    except subprocess.TimeoutExpired:
        ending = f"no end within {DEADLINE_S:.0f} s"
    lines = [json.loads(line) for line in report.read_text("utf-8").splitlines() if line]
    return lines, ending


def _child(environment: Environment, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(environment.python), str(environment.program), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        env={**os.environ, **SETTINGS, **environment.settings},
    )


def _stored(run: Run, output: Path, problem: str | None) -> Path | str:
    if problem is not None:
        return problem
    path = _path_of(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(output.read_bytes())
    temporary.replace(path)
    output.unlink()
    return path


def _path_of(run: Run) -> Path:
    parts = (
        _program_digest(run.library),
        run.kernel,
        run.case.name,
        str(run.case.epsilon),
        inputs_digest(run.case, run.seed),
    )
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return _folder_of(run.library) / digest[:2] / f"{digest}.npz"


def _folder_of(library: str) -> Path:
    return cache_folder() / "libraries-outputs" / library


@cache
def _program_digest(library: str) -> str:
    environment = environment_of(library)
    versions: object = environment.packages
    if environment.needs_gpu:  # whatever its interpreter has, on that GPU
        versions = sorted(listing(library).versions.items())
    settings = sorted({**SETTINGS, **environment.settings}.items())
    digest = hashlib.sha256(repr((versions, settings)).encode())
    for path in (environment.program, PROGRAMS / "protocol.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _last_line(text: str) -> str:
    lines: Iterator[str] = (line for line in reversed(text.splitlines()) if line.strip())
    return next(lines, "")[:200]
