"""A bare install: its size, its first test, and the numerics where numba is not installed.

Each figure of the numerics is that of a new process in which numba can't be imported.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SHAPE = [819, 8462]
CASES = (("layernorm_fw", "fp32"), ("layernorm_fw", "bf16"), ("layernorm_bw", "bf16"))
MAX_SECONDS, MAX_INPUTS = 3.0, 3.0
MAX_MEGABYTES = 125.0
MAX_FIRST_TEST = 2.0
PACKAGES = (
    "gonogo", "gonogo_pytest", "gonogo_storage", "gonogo_cli", "gonogo_settings",
    "service/gonogo_service", "workers/gonogo_workers", "dashboards/gonogo_dashboards",
    "migrations/gonogo_migrations",
)  # fmt: skip
"""The folders that a wheel holds."""


def compare(kernel: str, form: str) -> dict[str, float]:
    """Compare one right run by the definition: seconds, seconds of all cores, and its memory.

    The memory is a multiple of the inputs'.
    """
    for name in ("numba", "llvmlite"):
        sys.modules[name] = None  # type: ignore[assignment]
    from gonogo.judging import expected
    from gonogo.judging.inputs import generate, quantise
    from gonogo.judging.judging import matrix
    from gonogo.kernels import registry
    from gonogo.numerics.formats import round_to
    from gonogo.spec.test_spec import TestSpec

    test = TestSpec.parse(
        {
            "kernel": kernel,
            "shape": SHAPE,
            "numerics": {"input": form, "output": form},
            "tolerance": {"rtol": 1e-2, "atol": 1e-2},
        }
    )
    raw = generate(test, 0)
    given = quantise(test, raw)
    outputs = {}
    for name, value in registry.numerics(test).reference(test, given).items():
        stored = np.ascontiguousarray(round_to(np.asarray(value, np.float32), form))
        outputs[name] = matrix(test, name, {name: stored.reshape(test.shape_of(name))})
    began, cpu = time.perf_counter(), time.process_time()
    expected.statistics(test, raw, given, outputs, None)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    tracemalloc.start()
    expected.statistics(test, raw, given, outputs, None)
    _, peak = tracemalloc.get_traced_memory()
    return {
        "seconds": seconds,
        "cpu": cpu,
        "inputs": peak / sum(array.nbytes for array in given.values()),
    }


def megabytes() -> float:
    """Return the size of a bare install without pip, with byte code, of the packages here."""
    files: set[Path] = {
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "node_modules" not in path.parts
    }
    for name in requirements("gonogo"):
        files |= {
            Path(str(file.locate())) for file in metadata.distribution(name).files or () if file
        }
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def requirements(name: str, seen: set[str] | None = None) -> Iterator[str]:
    """Yield the distributions that one requires, and those that these require, without extras."""
    seen = set() if seen is None else seen
    for line in metadata.requires(name) or ():
        required, _, condition = line.partition(";")
        named = re.match(r"[A-Za-z0-9_.-]+", required)
        if named is None or condition.strip() or named[0] in seen:
            continue
        seen.add(named[0])
        yield named[0]
        yield from requirements(named[0], seen)


def first_test(*options: str) -> tuple[float, float]:
    """Return the seconds until pytest has run an empty test, and those of the processor."""
    program = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
        " used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        " print(used.ru_utime + used.ru_stime); sys.exit(code)"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_empty.py").write_text("def test_empty():\n    pass\n")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder]
        measured = []
        for _ in range(3):
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", program, *words],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            )
            measured.append((time.perf_counter() - began, float(done.stdout.splitlines()[-1])))
    return min(measured)


def main() -> None:
    """Print the figures."""
    if len(sys.argv) > 1:
        print(json.dumps(compare(*sys.argv[1:3])))
        return
    table = Table("figure", "asked", "measured", "beside it")
    for kernel, form in CASES:
        words = [sys.executable, "-m", "benchmarks.light", kernel, form]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout)
        name = f"{kernel} {form} 819x8462 without numba"
        table.add_row(
            name,
            f"at most {MAX_SECONDS:g} s",
            f"{figures['seconds']:.1f} s",
            f"{figures['cpu']:.1f} s of all cores",
        )
        table.add_row(
            f"{name}: memory", f"at most {MAX_INPUTS:g} x inputs", f"{figures['inputs']:.1f} x", ""
        )
    table.add_row(
        "bare install without pip", f"at most {MAX_MEGABYTES:g} MB", f"{megabytes():.0f} MB", ""
    )
    seconds, cpu = first_test("--gonogo", "off")
    alone, alone_cpu = first_test("-p", "no:gonogo_pytest.plugin")
    table.add_row(
        "pytest --gonogo to the end of an empty test",
        f"at most {MAX_FIRST_TEST:g} s",
        f"{seconds:.2f} s ({cpu:.2f} s of a core)",
        f"{alone:.2f} s ({alone_cpu:.2f} s) without the plug-in",
    )
    Console(highlight=False, width=120).print(table)


if __name__ == "__main__":
    main()
