"""The gates of public test suites: each says how it would judge the same runs.

Every gate is written from the public file that its `source` names; no code is taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gonogo.errors import FieldError
from gonogo.gauge.rules import (
    FRACTION_BITS,
    Accumulated,
    Close,
    Declared,
    Either,
    Rule,
    ScaledThreshold,
    Ulps,
    WelfordBound,
)
from gonogo.spec import fields

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class Gate:
    """A gate that a public suite uses, and where it does."""

    name: str
    rule: Rule
    sentence: str
    source: str
    """Repository and file, or the document, that describes the gate."""
    outputs: tuple[str, ...]
    """Outputs that the suite compares; a kernel that has none of them isn't gated."""
    kernels: tuple[str, ...] = ()
    """Kernels that the suite tests; empty: any."""

    @property
    def tolerance(self) -> Mapping[str, float] | None:
        """The tolerance that a test can declare; None where the rule needs the arrays."""
        return self.rule.tolerance if isinstance(self.rule, Declared) else None

    def judges(self, kernel: str, output_format: str) -> bool:
        """Return whether the gate judges this kernel with outputs in this format."""
        formats = self.rule.formats
        return (not self.kernels or kernel in self.kernels) and (
            formats is None or output_format in formats
        )

    def limit(self, test: TestSpec) -> str:
        """Return the limit for this test in words."""
        return self.rule.words(test.numerics.output, test.outputs)


LAYERNORM = ("layernorm_fw",)
LAYERNORM_GRADIENT = ("layernorm_bw",)
LAYERNORMS = ("layernorm_fw", "layernorm_bw")
FORWARD = ("y",)
STATISTICS = ("y", "mean", "rstd")
BACKWARD = ("dx", "dgamma", "dbeta")
MATRIX = ("y", "dx")
EVERY = ("y", "mean", "rstd", "dx", "dgamma", "dbeta")

_TTNN = "tenstorrent/tt-metal, tests/ttnn/unit_tests/operations/fused/test_layer_norm.py"
_TT_TRAIN = "tenstorrent/tt-metal, tt-train/tests/ops"
_COMMON = "a limit in common use, not one suite's"


def _everywhere(rtol: float, atol: float) -> Close:
    return Close(dict.fromkeys(FRACTION_BITS, (rtol, atol)))


_ALL = (
    Gate(
        "ttnn-bf16",
        Declared({"rtol": 1e-2, "atol": 5e-2, "pcc": 0.9999, "frobenius": 0.015}),
        "ttnn's layer_norm tests, bf16",
        _TTNN,
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "ttnn-legacy",
        Declared({"rtol": 0.2, "atol": 0.2, "pcc": 0.999, "frobenius": 0.15}),
        "ttnn's layer_norm tests, legacy reduction",
        _TTNN,
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "ttnn-ulp-fp32-dst",
        Declared({"ulp": 32.0}),
        "ttnn's layer_norm tests by ULP, fp32 Dst",
        _TTNN,
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "ttnn-ulp-bf16-dst",
        Declared({"ulp": 20000.0}),
        "ttnn's layer_norm tests by ULP, bf16 Dst",
        _TTNN,
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "moreh-backward",
        Declared({"rtol": 0.1, "atol": 0.5}),
        "ttnn's moreh layer_norm backward tests",
        "tenstorrent/tt-metal, tests/ttnn/nightly/unit_tests/operations/moreh/"
        "test_moreh_layer_norm.py",
        BACKWARD,
        LAYERNORM_GRADIENT,
    ),
    Gate(
        "tt-train-nightly",
        Declared({"rtol": 1e-3, "atol": 0.5}),
        "tt-train's nightly layernorm_bw test",
        f"{_TT_TRAIN}/layernorm_bw_fused_op_test.cpp",
        BACKWARD,
        LAYERNORM_GRADIENT,
    ),
    Gate(
        "tt-train-tight",
        Declared({"rtol": 1e-2, "atol": 1e-2}),
        "tt-train's layernorm_bw test with the tight tolerance",
        f"{_TT_TRAIN}/layernorm_bw_fused_op_test.cpp",
        BACKWARD,
        LAYERNORM_GRADIENT,
    ),
    Gate(
        "tt-train-forward",
        Declared({"rtol": 1e-3, "atol": 5e-2}),
        "tt-train's layernorm_fw test",
        f"{_TT_TRAIN}/layernorm_fw_fused_op_test.cpp",
        STATISTICS,
        LAYERNORM,
    ),
    Gate(
        "torch-testing",
        Close({"fp32": (1.3e-6, 1e-5), "bf16": (1.6e-2, 1e-5), "fp16": (1e-3, 1e-5)}),
        "torch.testing.assert_close, its defaults by dtype",
        "PyTorch's reference, torch.testing.assert_close",
        EVERY,
    ),
    Gate(
        "jax-testing",
        Close({"fp32": (1e-6, 1e-6), "bf16": (1e-2, 1e-2), "fp16": (1e-3, 1e-3)}),
        "JAX's assertAllClose, its defaults by dtype",
        "jax-ml/jax, jax/_src/public_test_util.py",
        EVERY,
    ),
    Gate(
        "kernelbench",
        _everywhere(1e-2, 1e-2),
        "KernelBench v0 and v0.1: 1e-2 in every format",
        "ScalingIntelligence/KernelBench, src/kernelbench/eval.py",
        EVERY,
    ),
    Gate(
        "kernelbench-by-precision",
        Close({"fp32": (1e-4, 1e-4), "bf16": (1e-2, 1e-2), "fp16": (1e-2, 1e-2)}),
        "KernelBench since then: 1e-4 in fp32, 1e-2 in 16 bits",
        "ScalingIntelligence/KernelBench, src/kernelbench/eval.py",
        EVERY,
    ),
    Gate(
        "backendbench",
        _everywhere(1e-2, 1e-2),
        "BackendBench",
        "meta-pytorch/BackendBench, BackendBench/eval.py",
        EVERY,
    ),
    Gate(
        "robust-kbench",
        _everywhere(1e-5, 1e-5),
        "robust-kbench, its default",
        "SakanaAI/robust-kbench, robust_kbench/primitives",
        EVERY,
    ),
    Gate(
        "flashinfer-bench",
        Either(rtol=1e-2, atol=1e-2, guard=1e-8),
        "FlashInfer-Bench: an element fails beyond both errors",
        "flashinfer-ai/flashinfer-bench, flashinfer_bench/bench/utils.py",
        EVERY,
    ),
    Gate(
        "composable-kernel",
        Accumulated(),
        "Composable Kernel's thresholds from the length of the sums",
        "ROCm/composable_kernel, include/ck_tile/host/check_err.hpp",
        EVERY,
    ),
    Gate(
        "hipdnn",
        WelfordBound(),
        "hipDNN's dynamic LayerNorm tolerance",
        "ROCm/rocm-libraries, projects/hipdnn, DynamicTolerancesLayerNorm.hpp",
        FORWARD,
        LAYERNORM,
    ),
    Gate(
        "benchdnn",
        ScaledThreshold({"y": 5e-7, "dx": 5e-7, "dgamma": 5e-6, "dbeta": 5e-6}),
        "oneDNN's benchdnn, its lnorm thresholds",
        "uxlfoundation/oneDNN, tests/benchdnn/lnorm/lnorm.cpp and utils/compare.cpp",
        (*FORWARD, *BACKWARD),
        LAYERNORMS,
    ),
    Gate("ulp-1", Ulps(1), "ULP <= 1 alone", _COMMON, EVERY),
    Gate("ulp-5", Ulps(5), "ULP <= 5 alone", _COMMON, EVERY),
    Gate("ulp-10", Ulps(10), "ULP <= 10 alone", _COMMON, EVERY),
    Gate("bit-equal", Ulps(0), "Equal to the correctly rounded value", _COMMON, EVERY),
    Gate("pcc-.999", Declared({"pcc": 0.999}), "PCC >= .999 alone", _COMMON, MATRIX),
    Gate("pcc-.99", Declared({"pcc": 0.99}), "PCC >= .99 alone", _COMMON, MATRIX),
)

GATES: Mapping[str, Gate] = {gate.name: gate for gate in _ALL}
"""Every gate by name."""

RTOLS = tuple(
    sorted({t["rtol"] for gate in _ALL if (t := gate.tolerance) is not None and "rtol" in t})
)
"""The rtols at which a row must be stored, so that every declared tolerance can be judged."""


def named(names: Sequence[str], path: str = "gates") -> tuple[Gate, ...]:
    """Return the gates of these names; none given: every gate.

    Raises FieldError for an unknown name and for a name given twice.
    """
    for place, name in enumerate(names):
        if name not in GATES:
            near = get_close_matches(name, GATES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            limit = "one of " + ", ".join(GATES)
            raise FieldError(fields.join(path, place), name, f"unknown gate{hint}", limit=limit)
    fields.check_distinct(names, path)
    return tuple(GATES[name] for name in names) or _ALL


def judging(test: TestSpec, names: Sequence[str] = ()) -> tuple[Gate, ...]:
    """Return the gates that judge a test's kernel and format, of these names or of all.

    Raises FieldError as `named` does.
    """
    gates = named(names)
    return tuple(gate for gate in gates if gate.judges(test.kernel, test.numerics.output))
