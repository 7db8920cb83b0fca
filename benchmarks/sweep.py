"""Sweep wrong kernels whose fault a usual shape doesn't show: how many are flagged, and how soon?

An entry of the fault table counts if it shows in none of three seeds at a kernel's usual shape, but
in one of 60 odd shapes and inputs that the sweep didn't choose. The number of a tile in its id is
the shape's: an entry is that fault in each shape that has it. Times are processor seconds.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Final

import numpy as np

from benchmarks.report import Figure, report
from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.registry import KERNELS
from gonogo.spec.arithmetic_names import TT_TRAIN
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo.sweep.cases import Case, cases, changed_test, regimes
from gonogo.workloads import fault_names

SWEPT: Final = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "groupnorm_fw", "softmax")
SECONDS, SHAPES = 60.0, 60


def entries(test: TestSpec) -> dict[str, str]:
    """Return the builds of a test's faults by entry."""
    return {re.sub(r"-tile-\d+", "-tile-n", name): name for name in fault_names(test)}


def is_flagged(case: Case, entry: str) -> bool:
    """Return whether a kernel with a fault is called wrong; never in shapes without the fault."""
    if (build := entries(case.test).get(entry)) is None:
        return False
    raw = generate(case.test, case.seed)
    given = quantise(case.test, raw)
    outputs = emulator.run(case.test, given, build)
    judged = judge(
        case.test, raw, given, outputs, arithmetic=TT_TRAIN, with_limits=False, with_faults=False
    )
    return judged.explanation is Explanation.unexplained


def odd_cases(base: TestSpec) -> Iterator[Case]:
    """Yield cases that the sweep didn't choose."""
    random, inputs = Random(99), regimes("bf16")
    for seed in range(1000, 1000 + SHAPES):
        shape = [random.randint(1, 130) for _ in base.shape[:-1]] + [random.randint(1, 300)]
        test = changed_test(base, shape=shape, inputs=random.choice(inputs))
        if test is not None:
            yield Case(test, seed)


def swept(base: TestSpec, every: int) -> Iterator[tuple[str, float | None]]:
    """Yield the entries that only odd shapes show, with the seconds until the sweep flags them."""
    odd = list(odd_cases(base))
    names = dict.fromkeys(name for test in (base, *(c.test for c in odd)) for name in entries(test))
    for name in list(names)[::every]:
        usual = any(is_flagged(Case(base, seed), name) for seed in range(3))
        if usual or not any(is_flagged(case, name) for case in odd):
            continue
        began = time.process_time()
        timely = (case for case in cases(base, 0) if time.process_time() - began < SECONDS)
        is_found = any(is_flagged(case, name) for case in timely)
        yield name, time.process_time() - began if is_found else None


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each entry, and the share that the sweep flagged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", default=SWEPT)
    parser.add_argument("--every", type=int, default=1, help="every nth entry (default: all)")
    chosen, count, flagged = parser.parse_args(arguments), 0, 0
    for kernel in chosen.kernels:
        base = TestSpec.parse({"kernel": kernel, "shape": KERNELS[kernel].example})
        with np.errstate(all="ignore"):
            for name, seconds in swept(base, chosen.every):
                count, flagged = count + 1, flagged + (seconds is not None)
                print(kernel, name, "missed" if seconds is None else f"{seconds:.1f} s", flush=True)
    name = f"flagged of {count} that only odd shapes show"
    return report("sweep", [Figure(name, 100 * flagged / max(count, 1), "%", least=90)])


if __name__ == "__main__":
    sys.exit(main())
