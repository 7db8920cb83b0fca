"""The numerics of a test, as the emulated kernels need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gonogo.kernels.normalization.emulation.loops import Rules
from gonogo.numerics.jit import pays
from gonogo.numerics.tensix.arithmetic_jit import FIDELITY_MASKS

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class Machine:
    """The numerics of a test on one build.

    Attributes:
        fidelity: phases of every FPU product.
        narrow: 16-bit Dst for everything that passes through it.
        narrow_sums: 16-bit Dst for the sums over the tiles of a row (also a build's regression, in
            a test that asks for fp32).
        buffers: format of x^ and of the other stored intermediates.
        output: format of the outputs.
        srcb_bf16: in an op of mixed formats, SrcB sees the fp32 operand as bf16 instead of TF32.
        formats: format of each input tensor, of "buffers" and of "scaler", the tile of 1/N.
        elements: the size of the test's tensors.
    """

    fidelity: str
    narrow: bool
    narrow_sums: bool
    buffers: str
    output: str
    srcb_bf16: bool
    formats: Mapping[str, str]
    elements: int = 0

    @classmethod
    def of(cls, test: TestSpec, narrow_sums: bool) -> Machine:
        """Return a test's numerics; `narrow_sums` is the build's regression."""
        numerics = test.numerics
        names = ("x", "dy", "gamma", "beta", "mean", "rstd")
        narrow = numerics.accumulate == "bf16"
        return cls(
            fidelity=numerics.fidelity,
            narrow=narrow,
            narrow_sums=narrow or narrow_sums,
            buffers=numerics.buffers,
            output=numerics.output,
            srcb_bf16=numerics.srcb == "bf16",
            formats={"buffers": numerics.buffers, "scaler": "bf16"}
            | {name: numerics.format_of(name) for name in names},
            elements=test.rows * test.features,
        )

    @property
    def compiled(self) -> bool:
        """True where the compiled loops support these numerics, and pay.

        The NumPy definition supports all.
        """
        return pays(self.elements) and self.buffers in ("bf16", "fp32")

    def rules(self, lanes_bf16: bool) -> Rules:
        """Return these numerics for the compiled loops."""
        high, low = FIDELITY_MASKS[self.fidelity]
        return Rules(
            high,
            low,
            narrow=self.narrow,
            narrow_sums=self.narrow_sums,
            lanes_bf16=lanes_bf16,
            bf16_buffers=self.buffers == "bf16",
            bf16_output=self.output == "bf16",
        )

    def reads_bf16(self, source_b: str, source_a: str) -> bool:
        """Return whether SrcB truncates tensor `source_b` to bf16 beside `source_a` in SrcA.

        That is a mixed op under `srcb: bf16`.
        """
        return (
            self.srcb_bf16 and self.formats[source_b] == "fp32" and self.formats[source_a] != "fp32"
        )
