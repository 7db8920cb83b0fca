"""The known faults of the simulated Wormhole.

Where one applies, the failure of a right kernel says nothing about the kernel. A limit changes no
verdict: the simulator's outputs are judged like any others. Each limit is named beside the verdict
(`gonogo check`), listed in docs/wormhole.md (a test compares), and run by tests/simulator: a limit
that no longer exists fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

TILE = 32
SIMULATED = "TT_METAL_SIMULATOR"
"""The variable in a build's environment that makes ttnn run on a simulator instead of a card."""


@dataclass(frozen=True)
class Limit:
    """One fault: for which tests and builds, the resulting verdict, and a description."""

    name: str
    verdict: str
    words: str
    applies: Callable[[Mapping[str, Any], str], bool]
    """Tells whether it applies to a canonical test and the name of a build."""


def _welford(test: Mapping[str, Any], build: str) -> bool:
    return build == "ttnn-welford" or test.get("program") == "welford"


def _statistics(test: Mapping[str, Any], build: str) -> bool:
    return build == "ttnn-moreh" and test["kernel"] == "layernorm_fw"


def _block_formats(test: Mapping[str, Any], _build: str) -> bool:
    numerics = test.get("numerics", {})
    given = numerics.get("input", "bf16")
    formats = [*given.values()] if isinstance(given, Mapping) else [given]
    return "bfp8_b" in (numerics.get("output"), *formats)


def _one_row_of_cores(test: Mapping[str, Any], _build: str) -> bool:
    memory = test.get("memory", "interleaved")
    if isinstance(memory, Mapping):
        return bool(memory["sharded"][0] == 1 and memory["sharded"][1] > 1)
    *others, last = test["shape"]
    parameters = test.get("parameters", {})
    columns = parameters.get("columns") or parameters.get("features") or last
    return test["kernel"] in ("matmul", "linear") and prod(others) <= TILE < columns


def _sums_in_fp32(test: Mapping[str, Any], build: str) -> bool:
    given = test.get("numerics", {}).get("input", "bf16")
    is_wide = given == "fp32" or (isinstance(given, Mapping) and "fp32" in given.values())
    return build == "ttnn" and test["kernel"] in ("sum", "mean") and is_wide


LIMITS = (
    Limit(
        "welford",
        "fail",
        "The Welford reduction of ttnn.layer_norm gives wrong numbers, errors near 2, and leaves "
        "the core so that every later kernel of the same process is wrong too. A pass is asked "
        "for on hardware only.",
        _welford,
    ),
    Limit(
        "moreh-statistics",
        "fail",
        "mean and rstd of moreh's forward are right in the first row of each tile only; in the "
        "others they are 0 and 1/sqrt(0 + epsilon). A public report says the same of hardware.",
        _statistics,
    ),
    Limit(
        "block-formats",
        "crash",
        "bfp8_b tensors end the simulator: its unpacker has no conversion from that format.",
        _block_formats,
    ),
    Limit(
        "one-row-of-cores",
        "hang",
        "A tensor that is sharded over one row of several cores never ends, nor does a product of "
        "at most 32 rows and more columns; several rows of cores do.",
        _one_row_of_cores,
    ),
    Limit(
        "sums-in-fp32",
        "fail",
        "Sums and means of fp32 rows by the SFPU are wrong; those of the build ttnn-fast, which "
        "the matrix unit computes, are right.",
        _sums_in_fp32,
    ),
)


def known(test: Mapping[str, Any], build: str, environment: Mapping[str, str]) -> list[Limit]:
    """Return the limits that this run meets: none on real hardware.

    `environment` is the build's own.
    """
    if SIMULATED not in environment:
        return []
    return [limit for limit in LIMITS if limit.applies(test, build)]
