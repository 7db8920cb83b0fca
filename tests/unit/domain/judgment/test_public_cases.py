"""Wrong and right kernels after public bug reports: what is said about each."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.corpus.judging import ask
from benchmarks.corpus.run import Run
from benchmarks.corpus.sources.cases import CASES, Cases

FLAGGED = ("unexplained", "suspect")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "output", "explanations", "words"),
    [
        ("layernorm_fw-32x1000-merged_halves-bf16", "y", FLAGGED, "variance is wrong by no one"),
        ("layernorm_bw-1025x32-missing_row-bf16", "dgamma", FLAGGED, "leaves out the last row"),
        ("layernorm_bw-128x256-stored_for_dgamma_0.5-bf16", "dgamma", FLAGGED, "mean is stored"),
        ("layernorm_bw-8x1-cancels-fp32", "dgamma", ("inconclusive",), "larger than the output"),
        ("layernorm_fw-64x1-constant_rows-bf16", "y", ("explained", "inconclusive"), ""),
        ("layernorm_bw-64x512-from_y-bf16", "dx", FLAGGED, "values are off"),
        ("layernorm_fw-64x64-unwritten_tail-fp16", "y", FLAGGED, "they are 0"),
        ("layernorm_fw-256x256-rows_shifted-fp32", "y", FLAGGED, "x is that of the row before"),
        ("layernorm_bw-128x256-half_columns-bf16", "dgamma", FLAGGED, "32 to 63 of every 64"),
        ("layernorm_fw-32x1024-half_read-bf16", "y", FLAGGED, "16 to 31 of every 32"),
        ("rmsnorm_bw-1024x32-other_rows_sum-fp32", "dx", FLAGGED, "31,744 of 32,768 values"),
        ("layernorm_fw-64x256-race-fp32", "y", FLAGGED, "rows 11 and 40, columns 224 to 255"),
        ("layernorm_fw-64x256-wrapped-fp32", "y", FLAGGED, "the values of rows 0 to 7"),
        ("layernorm_fw-64x256-saved_rstd_lost-fp32", "rstd", FLAGGED, "62 of 64 values are off"),
        ("rmsnorm_fw-32x1024-tf32_input-fp32", "y", FLAGGED, "x is truncated to TF32"),
        ("rmsnorm_fw-32x1024-kernel_rounds_the_sum-bf16", "y", FLAGGED, "x is stored in bf16"),
        ("layernorm_fw-16x64-right-fp32", "y", ("explained",), ""),
    ],
)
def test_what_is_said_about_a_reported_kernel(
    case: str, output: str, explanations: tuple[str, ...], words: str
) -> None:
    edit = "" if CASES[case].size in ("right", "listed") else case.split("-")[2]
    run = Run("cases", "NumPy", case, 0, edit)
    outputs, _ = Cases().make(run)
    with np.errstate(all="ignore"):
        judgment = ask(Cases().question(run), {output: outputs[output]})
    answer = judgment.outputs[output]
    assert answer.explanation in explanations, answer.message
    assert words in answer.message
