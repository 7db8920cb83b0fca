"""The gates of public test suites, as tolerances: each says how it would judge the same runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """A tolerance that a public suite uses, and the place where it does."""

    name: str
    tolerance: Mapping[str, float]
    sentence: str
    outputs: tuple[str, ...]
    """Outputs that the suite compares; a kernel that has none of them isn't gated."""
    kernels: tuple[str, ...] = ()
    """Kernels that the suite tests; empty: any."""


LAYERNORM = ("layernorm_fw",)
FORWARD = ("y",)
BACKWARD = ("dx", "dgamma", "dbeta")
MATRIX = ("y", "dx")
EVERY = ("y", "mean", "rstd", "dx", "dgamma", "dbeta")

_ALL = (
    Gate(
        "ttnn-bf16",
        {"rtol": 1e-2, "atol": 5e-2, "pcc": 0.9999, "frobenius": 0.015},
        "ttnn's layer_norm tests, bf16",
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "ttnn-legacy",
        {"rtol": 0.2, "atol": 0.2, "pcc": 0.999, "frobenius": 0.15},
        "ttnn's layer_norm tests, legacy reduction",
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "ttnn-ulp-fp32-dst",
        {"ulp": 32.0},
        "ttnn's layer_norm tests by ULP, fp32 Dst",
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "ttnn-ulp-bf16-dst",
        {"ulp": 20000.0},
        "ttnn's layer_norm tests by ULP, bf16 Dst",
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "moreh-backward",
        {"rtol": 0.1, "atol": 0.5},
        "ttnn's moreh layer_norm backward tests",
        BACKWARD,
    ),
    Gate(
        "tt-train-nightly",
        {"rtol": 1e-3, "atol": 0.5},
        "tt-train's nightly layernorm_bw test",
        BACKWARD,
    ),
    Gate("torch-bf16", {"rtol": 1.6e-2, "atol": 1e-5}, "torch.testing.assert_close, bf16", EVERY),
    Gate("torch-fp32", {"rtol": 1.3e-6, "atol": 1e-5}, "torch.testing.assert_close, fp32", EVERY),
    Gate("pcc-.999", {"pcc": 0.999}, "PCC >= .999 alone", MATRIX),
    Gate("pcc-.99", {"pcc": 0.99}, "PCC >= .99 alone", MATRIX),
)

GATES: Mapping[str, Gate] = {gate.name: gate for gate in _ALL}
"""Every gate by name."""

RTOLS = tuple(sorted({gate.tolerance["rtol"] for gate in _ALL if "rtol" in gate.tolerance}))
"""The rtols at which a row must be stored, so that every gate can be judged."""
