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
    shape = ",".join(map(str, canonical["shape"]))
    words = ["gonogo", "gauge", "--kernel", canonical["kernel"], "--shape", shape]
    if builds or wrong_builds:
        words += ["--executor", executor]
    for flag, names in (("--build", builds), ("--wrong-build", wrong_builds), ("--gate", gates)):
        words += [word for name in names for word in (flag, name)]
    words += ["--seeds", str(count)]
    if start:
        words += ["--seed-start", str(start)]
    if "epsilon" in canonical:
        words += ["--epsilon", repr(canonical["epsilon"])]
    tolerance: Mapping[str, Any] = canonical.get("tolerance") or {}
    is_plain = all(isinstance(value, int | float) for value in tolerance.values())
    if is_plain:
        words += [word for name, value in tolerance.items() for word in (f"--{name}", repr(value))]
    for name in (*(() if is_plain else ("tolerance",)), "inputs", "numerics"):
        if canonical.get(name):
            words += [f"--{name}", json.dumps(canonical[name], separators=(",", ":"))]
    return shlex.join(words)
