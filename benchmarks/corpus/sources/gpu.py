"""Sums that an H100 returned to jax 0.11.2, as the gradients of beta that they are.

`sum of dy over rows`: eight columns each, with totals in 16 bits. XLA chose the order: one warp
for jnp.sum over axis 0, warps or tiles for lax.reduce along rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus.run import TOLERANCES, Arrays, Label, Question, Run
from benchmarks.libraries.cases import narrowed

ROW_SUMS: Final = {
    ("warps", "bf16", 8, 300): "c1cd c106 c210 c228 4205 4202 406c c0fa",
    ("warps", "fp16", 8, 1000): "d194 4d0a c014 4d29 4dc7 cb4c cd36 51ac",
    ("warps", "bf16", 32, 513): "4157 c106 418c 4108 c1f8 c150 c2a0 4136",
    ("warps", "bf16", 32, 4096): "c27f c2d0 c182 c2d4 c2a2 40f0 c252 c241",
    ("warps", "fp16", 8, 8462): "d45f 502c 4e42 b4c0 d1be d912 d309 c955",
    ("tiles", "fp16", 32, 300): "cfa5 4b92 c5a4 42d4 3c30 c1c0 bddc 3da0",
    ("tiles", "fp16", 8, 513): "5086 4de2 cae8 4138 4852 4206 cdf1 d0bc",
    ("tiles", "bf16", 8, 1000): "c232 419f c000 41a6 41b9 c16e c1a6 4235",
    ("tiles", "fp16", 8, 2048): "52da ca8b d262 4d53 cff8 54f1 40e0 4b5e",
    ("tiles", "fp16", 8, 4096): "5486 581b 3000 ce41 cda4 d569 5247 d508",
    ("tiles", "bf16", 8, 8462): "c28a 4206 41c0 bf00 c233 c323 c262 c13b",
}
"""Order, format, rows and width of a tensor, and the bits of the sums of its first eight rows."""
COLUMN_SUMS: Final = {
    ("fp16", 20, 300): "484e bd8c 3dee 3706 3eea b83e 4678 bb82",
    ("bf16", 33, 300): "c1a4 c0ff c0d4 bf20 40b2 3fa8 4126 bfa8",
    ("fp16", 40, 8462): "47bf 4622 c3d2 c843 cac2 44e8 4803 bf2f",
    ("fp16", 256, 1024): "cd0f c82a 4422 4b7c 474c 4ec6 3880 ce0b",
    ("bf16", 2048, 300): "c290 421f c030 41f2 4176 c1c5 4010 c27d",
}
"""Format, rows and width of a tensor, and the sums of its first eight columns in one warp."""
SUMS: Final = {
    "lax.reduce": {recorded[1:]: bits for recorded, bits in ROW_SUMS.items()},
    "jnp.sum": COLUMN_SUMS,
}
"""Function -> its sums."""


def tensor(rows: int, width: int) -> NDArray[np.float32]:
    """Return the values that the GPU was given, before they are rounded to 16 bits."""
    drawn = np.random.default_rng([rows, width]).standard_normal((rows, width))
    return drawn.astype(np.float32)


class Recorded:
    """The recorded sums: nothing runs, and only bits that a GPU returned are here."""

    def runs(self, left_out: list[str]) -> Iterator[Run]:
        """Yield all runs."""
        left_out.append("whole kernels of a GPU: the project holds no recorded outputs of one")
        for kernel, table in SUMS.items():
            for form, rows, width in table:
                yield Run("gpu", kernel, f"layernorm_bw-{rows}x{width}-normal-{form}", 0)

    def prepare(self, chosen: Sequence[Run], left_out: list[str]) -> Sequence[Run]:
        """Return all of them."""
        return chosen

    def question(self, run: Run) -> Question:
        """Return a backward LayerNorm whose dy are the numbers that the GPU added up."""
        _, shape, _, form = run.case.split("-")
        rows, width = (int(part) for part in shape.split("x"))
        values = tensor(rows, width)
        terms = values[:8].T if run.kernel == "lax.reduce" else values[:, :8]
        dy = narrowed(np.ascontiguousarray(terms), form)
        x = narrowed(np.random.default_rng(0).standard_normal(dy.shape), form)
        numerics = {"input": form, "output": form}
        given = {"x": x, "gamma": np.ones(8, np.float32), "dy": dy}
        return Question("layernorm_bw", given, 1e-5, numerics, tolerance=TOLERANCES[form])

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the recorded sums."""
        _, shape, _, form = run.case.split("-")
        rows, width = (int(part) for part in shape.split("x"))
        texts = SUMS[run.kernel][form, rows, width].split()
        bits = np.array([int(text, 16) for text in texts], np.uint32)
        if form == "fp16":
            sums = bits.astype(np.uint16).view(np.float16).astype(np.float32)
        else:
            sums = (bits << 16).view(np.float32)
        return {"dbeta": sums}, Label("right", "16-bit-storing")
