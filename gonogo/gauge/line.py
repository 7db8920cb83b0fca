"""The shell command that measures a test again on the reader's own machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gonogo.spec.builds import EMULATOR

LEFT_OUT = ("memory", "program")
"""Fields of a test that the command has no flags for, and that the emulator doesn't use."""


def gauge_line(
    canonical: Mapping[str, Any],
    *,
    start: int,
    count: int,
    executor: str = EMULATOR,
    builds: Sequence[str] = (),
    wrong_builds: Sequence[str] = (),
    gates: Sequence[str] = (),
) -> str:
    """Return `gonogo gauge ...` for a test in canonical form: the same parts and seeds."""
    words = [
        "gonogo",
        "gauge",
        "--kernel",
        canonical["kernel"],
        "--shape",
        ",".join(str(n) for n in canonical["shape"]),
    ]
    if builds or wrong_builds:
        words += ["--executor", executor]
    for flag, names in (("--build", builds), ("--wrong-build", wrong_builds), ("--gate", gates)):
        for name in names:
            words += [flag, name]
    words += ["--seeds", str(count)]
    if start:
        words += ["--seed-start", str(start)]
    if "epsilon" in canonical:
        words += ["--epsilon", repr(canonical["epsilon"])]
    tolerance: Mapping[str, Any] = canonical.get("tolerance") or {}
    if all(isinstance(value, int | float) for value in tolerance.values()):
        for name, value in tolerance.items():
            words += [f"--{name}", repr(value)]
    else:
        words += ["--tolerance", json.dumps(tolerance, separators=(",", ":"))]
    for name in ("inputs", "numerics"):
        if canonical.get(name):
            words += [f"--{name}", json.dumps(canonical[name], separators=(",", ":"))]
    return shlex.join(words)
