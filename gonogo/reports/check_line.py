"""The shell commands that rerun or measure a test on a user's machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gonogo.spec.builds import EMULATOR
from gonogo.spec.selections import Selection, is_selection
from gonogo.spec.tolerances import for_output

LEFT_OUT = ("memory", "program")
"""Fields of a test for which the commands have no flag, and which the emulator doesn't use."""
Flags = Iterable[tuple[str, object]]


def left_out_of_line(canonical: Mapping[str, Any]) -> list[str]:
    """Return the fields of a test that its command leaves out."""
    return [name for name in LEFT_OUT if name in canonical]


def command(verb: str, flags: Flags) -> str:
    """Return `gonogo VERB` with the flags whose values are neither None nor empty."""
    words = ["gonogo", verb]
    for name, value in flags:
        if value is not None and value != {}:
            words += [f"--{name}", _spelled(value)]
    return shlex.join(words)


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
        shuffle = "true" if selection.shuffle is True else selection.shuffle
        flags += [("executor", executor), ("build", build)]
        flags += [("suite", selection.suite), ("filter", selection.filter), ("shuffle", shuffle)]
        flags += [("stage", stage) for stage in selection.stages or ()]
    else:
        flags += [*_kernel(canonical), ("build", build)]
        flags.append(("executor", None if executor == EMULATOR else executor))
        flags.append(("reference-build", reference))
        later.append(("epsilon", canonical.get("epsilon")))
        tolerance = for_output(canonical.get("tolerance", {}), output)
        later += (tolerance.to_json() if tolerance else {}).items()
        later += _objects(canonical)
        if isinstance(context, Mapping):  # otherwise isolated, which is the command's default
            later.append(("context", context))
    flags += [("seeds", seeds), ("seed-start", seed)]
    flags.append(("repeats", repeats if repeats > 1 else None))
    return command("check", [*flags, *later])


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
    """Return `gonogo gauge ...` for a kernel's test: the same parts and seeds."""
    named = (("build", builds), ("wrong-build", wrong_builds), ("gate", gates))
    tolerance: Mapping[str, Any] = canonical.get("tolerance") or {}
    is_plain = all(isinstance(value, int | float) for value in tolerance.values())
    return command(
        "gauge",
        [
            *_kernel(canonical),
            ("executor", executor if builds or wrong_builds else None),
            *((flag, name) for flag, names in named for name in names),
            ("seeds", count),
            ("seed-start", start or None),
            ("epsilon", canonical.get("epsilon")),
            *(tolerance.items() if is_plain else [("tolerance", tolerance)]),
            *_objects(canonical),
        ],
    )


def _kernel(canonical: Mapping[str, Any]) -> Flags:
    shape = ",".join(map(str, canonical["shape"]))
    return [("kernel", canonical["kernel"]), ("shape", shape)]


def _objects(canonical: Mapping[str, Any]) -> Flags:
    return [(name, canonical.get(name)) for name in ("parameters", "inputs", "numerics")]


def _spelled(value: object) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else json.dumps(value, separators=(",", ":"))
