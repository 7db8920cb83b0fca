"""The shell command that reruns seeds of a test on a user's machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from gonogo.spec.builds import EMULATOR
from gonogo.spec.selections import Selection, is_selection
from gonogo.spec.tolerances import for_output

LEFT_OUT = ("memory", "program")
"""Fields of a test for which the command has no flag."""


def left_out_of_line(canonical: Mapping[str, Any]) -> list[str]:
    """Return the fields of a test that its command leaves out."""
    return [name for name in LEFT_OUT if name in canonical]


def check_line(
    canonical: Mapping[str, Any],
    *,
    build: str,
    executor: str,
    seed: int,
    output: str,
    reference: str | None = None,
    seeds: int = 1,
    repeats: int = 1,
    context: Any = None,
) -> str:
    """Return the command that reruns `seeds` seeds of a test, or iterations, from `seed` on.

    If the outputs have different tolerances, it has that of `output`, because the command has no
    flags for the others.
    """
    flags: list[tuple[str, object]] = []
    later: list[tuple[str, object]] = []
    if is_selection(canonical):
        selection = Selection.parse(canonical)
        flags += [("executor", executor), ("build", build)]
        flags += [("suite", selection.suite), ("filter", selection.filter)]
        shuffle = selection.shuffle
        flags.append(("shuffle", "true" if shuffle is True else shuffle))
        flags += [("stage", stage) for stage in selection.stages or ()]
    else:
        shape = ",".join(str(size) for size in canonical["shape"])
        flags += [("kernel", canonical["kernel"]), ("shape", shape), ("build", build)]
        flags.append(("executor", None if executor == EMULATOR else executor))
        flags.append(("reference-build", reference))
        later.append(("epsilon", canonical.get("epsilon")))
        tolerance = for_output(canonical.get("tolerance", {}), output)
        later += (tolerance.to_json() if tolerance else {}).items()
        later += [(name, canonical.get(name)) for name in ("parameters", "inputs", "numerics")]
        if isinstance(context, Mapping):  # otherwise isolated, which is the command's default
            later.append(("context", context))
    flags += [("seeds", seeds), ("seed-start", seed)]
    flags.append(("repeats", repeats if repeats > 1 else None))
    words = ["gonogo", "check"]
    for name, value in (*flags, *later):
        if value is not None and value != {}:
            words += [f"--{name}", _spelled(value)]
    return shlex.join(words)


def _spelled(value: object) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else json.dumps(value, separators=(",", ":"))
