"""Tests of right kernels: every combination of shapes, regimes and formats in turn.

Every seed has its own, so that 1,000 seeds of an arithmetic cover all of them many times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from gonogo.spec.test_spec import TestSpec

SHAPES = (
    [1, 1],
    [1, 7],
    [5, 1],
    [3, 20],
    [33, 50],
    [64, 96],
    [40, 257],
    [16, 1024],
    [4, 4096],
    [300, 32],
    [2, 3, 32, 64],
)

REGIMES: tuple[Mapping[str, Any], ...] = (
    {"regime": "uniform", "low": -1, "high": 1},
    {"regime": "normal", "mean": 0, "std": 1},
    {"regime": "normal", "mean": 0, "std": 1e-3},
    {"regime": "offset", "offset": 10, "std": 1},
    {"regime": "offset", "offset": -3, "std": 0.05},
    {"regime": "ramp", "low": -1, "high": 1},
    {"regime": "ramp", "low": 1, "high": 1.01},
    {"regime": "hot_tile", "tile": 0, "value": 8},
    {"regime": "constant", "value": 0.5},
    {"regime": "uniform", "low": 0, "high": 1},
)
NUMERICS: tuple[Mapping[str, Any], ...] = (
    {},
    {"input": "fp32", "output": "fp32"},
    {"input": "fp32"},
    {"output": "bfp8_b"},
    {"statistics": "own"},
)


GROUPED: tuple[tuple[list[int], int], ...] = (
    ([1, 1], 1),
    ([3, 7], 7),
    ([2, 12], 3),
    ([2, 6, 5, 5], 2),
    ([4, 32, 8, 8], 8),
    ([1, 64, 4, 4], 1),
    ([16, 8, 3], 4),
    ([2, 40, 16], 10),
    ([1, 16, 32, 16], 2),
    ([32, 4, 7, 7], 1),
    ([5, 33, 2], 33),
)
"""Shapes of group norm, with their groups."""
BACKWARD = ("layernorm_bw", "rmsnorm_bw")


def cases(seeds: int, kernel: str) -> Iterator[tuple[int, TestSpec]]:
    """(seed, test) with every combination in turn."""
    for seed, (numerics, regime, shape) in zip(
        range(seeds), itertools.cycle(itertools.product(NUMERICS, REGIMES, SHAPES)), strict=False
    ):
        chosen = {
            k: v for k, v in numerics.items() if not (kernel not in BACKWARD and k == "statistics")
        }
        spec = {
            "kernel": kernel,
            "shape": shape,
            "inputs": dict(regime),
            "numerics": chosen,
            "tolerance": {"rtol": 1e-2, "atol": 5e-2},
        }
        if kernel == "groupnorm_fw":
            grouped, groups = GROUPED[SHAPES.index(shape)]
            spec |= {"shape": grouped, "parameters": {"num_groups": groups}}
            if chosen.get("output") == "bfp8_b":  # a group isn't a row of tiles
                spec["numerics"] = {"output": "bf16", "input": {"gamma": "fp32", "beta": "fp32"}}
        yield seed, TestSpec.parse(spec)


def applies(name: str, arithmetic: str, test: TestSpec) -> bool:
    """Return whether the named kernel is right for an arithmetic model.

    One that stores bf16 is not right for `generic` where every tensor is fp32.
    """
    numerics = test.numerics
    wide = numerics.input == numerics.output == "fp32"
    return not (
        arithmetic == "generic"
        and wide
        and (name.startswith("bf16") or name == "emulated Wormhole")
    )
