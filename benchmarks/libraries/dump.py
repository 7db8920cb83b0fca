"""Write every run as one .npz file, for those who study the numbers elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.libraries import mutants
from benchmarks.libraries.cases import Case, Tensors, inputs
from benchmarks.libraries.mutants import Mutant, Source
from benchmarks.libraries.runs import Run, load
from benchmarks.libraries.trials import SOURCES_LIBRARY

LAYOUT = """One .npz per run: LIBRARY--KERNEL--CASE--SEED.npz.
meta: a string, JSON: library, kernel, group, source, edit, term, is_no_op, stored, sums, format, \
kind, epsilon, groups, seed, case, regime, shape, versions.
in_x, in_gamma, in_beta, in_dy, out_y, out_dx, out_dgamma, out_dbeta: float32 with the format's \
values.
"""


def dump(
    folder: Path,
    rights: Mapping[Run, Path],
    wrong: Iterable[tuple[Mutant, Case]],
    seeds: int,
    versions: Mapping[str, Mapping[str, str]],
) -> int:
    """Write all runs and return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for run, path in rights.items():
        facts = {"group": "right", "versions": dict(versions[run.library])}
        _write(folder, run, load(path), facts)
        count += 1
    twins: set[tuple[Source, Case]] = set()
    for mutant, case in wrong:
        for seed in range(seeds):
            if (mutant.source, case) not in twins:
                run = Run(SOURCES_LIBRARY, mutant.source.name, case, seed)
                _write(folder, run, mutants.run(mutant.source, case, seed), _facts(mutant.source))
                count += 1
            facts = _facts(mutant.source) | {
                "group": f"mutant {mutant.source.group}",
                "edit": mutant.edit.name,
                "term": mutant.edit.term,
                "is_no_op": mutants.is_no_op(mutant, case, seed),
            }
            outputs = mutants.run(mutant.source, case, seed, mutant.edit.name)
            _write(folder, Run(SOURCES_LIBRARY, mutant.name, case, seed), outputs, facts)
            count += 1
        twins.add((mutant.source, case))
    (folder / "READY").write_text(LAYOUT, "utf-8")
    return count


def _facts(source: Source) -> dict[str, Any]:
    return {
        "group": f"right {source.group}",
        "source": source.name,
        "stored": source.stored,
        "sums": source.sums,
    }


def _write(folder: Path, run: Run, outputs: Tensors, facts: Mapping[str, Any]) -> None:
    case = run.case
    meta = {
        "library": run.library,
        "kernel": run.kernel,
        "format": case.format,
        "kind": case.kind,
        "epsilon": case.epsilon,
        "groups": case.groups,
        "seed": run.seed,
        "case": case.name,
        "regime": case.regime,
        "shape": case.shape,
        **facts,
    }
    kernel = re.sub(r"[^\w.^-]+", "_", run.kernel)
    arrays: dict[str, Any] = {f"in_{name}": a for name, a in inputs(case, run.seed).items()}
    arrays |= {f"out_{name}": values for name, values in outputs.items()}
    path = folder / f"{run.library}--{kernel}--{case.name}--{run.seed}.npz"
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)
