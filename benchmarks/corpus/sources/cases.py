"""Small NumPy kernels after public bug reports: right and wrong ones that a judge once misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus.run import Arrays, Label, Question, Run
from gonogo.arithmetic.formats import round_to

Floats = NDArray[Any]
Random = np.random.Generator
SEEDS: Final = 3
EPSILON: Final = np.float32(1e-5)


@dataclass(frozen=True)
class Case:
    """A kernel after a report.

    draw: from a generator to (inputs, outputs). size: see Label; a seed of a wrong one must
    not be green and right. tolerance: rtol and atol.
    """

    draw: Callable[[Random], tuple[Arrays, Arrays]]
    size: str = "clear"
    group: str = "fp32-inside"
    tolerance: tuple[float, float] = (1e-2, 1e-2)


def bf16(values: Floats) -> Floats:
    """Return values rounded to bf16."""
    return narrowed(values, "bf16")


def narrowed(values: Floats, form: str) -> Floats:
    """Return values rounded once to a format, as float32."""
    return round_to(values, form).astype(np.float32)


def normal(random: Random, *shape: int) -> Floats:
    """Return standard normal numbers in float32."""
    return random.normal(size=shape).astype(np.float32)


def moments(x: Floats) -> tuple[Floats, Floats]:
    """Return mean and rstd of each row as columns."""
    variance = x.var(-1, keepdims=True)
    return x.mean(-1, keepdims=True), (1 / np.sqrt(variance + EPSILON)).astype(np.float32)


def forward(x: Floats, gamma: Floats, beta: Floats) -> Floats:
    """Return a LayerNorm in float32."""
    mean, rstd = moments(x)
    return (x - mean) * rstd * gamma + beta


def rms(x: Floats, gamma: Floats) -> Floats:
    """Return an RMSNorm in float32."""
    y: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * gamma
    return y


def backward_inputs(random: Random, rows: int, n: int, offset: float = 0.0) -> dict[str, Floats]:
    """Return the inputs of a backward LayerNorm in bf16, with given statistics in fp32."""
    x, gamma, dy = (bf16(normal(random, *shape)) for shape in ((rows, n), (n,), (rows, n)))
    x = bf16(x + offset)
    mean, rstd = moments(x)
    return {"x": x, "gamma": gamma, "mean": mean[:, 0], "rstd": rstd[:, 0], "dy": dy}


def xhat_of(given: Mapping[str, Floats]) -> Floats:
    """Return (x - mean) rstd with the given statistics."""
    normalized: Floats = (given["x"] - given["mean"][:, None]) * given["rstd"][:, None]
    return normalized


def merged_halves(random: Random) -> tuple[Arrays, Arrays]:
    """Merge the variances of two halves without the difference of their means."""
    x, gamma, beta = (bf16(random.uniform(-1, 1, s)) for s in ((32, 1000), 1000, 1000))
    variance = x.reshape(32, 2, -1).var(-1).mean(-1, keepdims=True)
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + EPSILON) * gamma + beta
    return {"x": x, "gamma": gamma, "beta": beta}, {"y": bf16(y)}


def missing_row(random: Random) -> tuple[Arrays, Arrays]:
    """Leave the last of 1025 rows out of the sums down the columns."""
    given = backward_inputs(random, 1025, 32)
    terms = given["dy"] * xhat_of(given)
    return given, {"dgamma": bf16(terms[:-1].sum(0)), "dbeta": bf16(given["dy"][:-1].sum(0))}


def truncated_statistics(offset: float) -> Callable[[Random], tuple[Arrays, Arrays]]:
    """Read mean and rstd rounded to bf16 for dgamma only."""

    def draw(random: Random) -> tuple[Arrays, Arrays]:
        given = backward_inputs(random, 128, 256, offset)
        coarse = given | {name: bf16(given[name]) for name in ("mean", "rstd")}
        dgamma = (given["dy"] * xhat_of(coarse)).sum(0)
        return given, {"dgamma": bf16(dgamma), "dbeta": bf16(given["dy"].sum(0))}

    return draw


def cancelling(random: Random) -> tuple[Arrays, Arrays]:
    """Give dgamma as sum dy (x rstd - mean rstd) with one column and x about 1e6."""
    x = (1e6 * (1 + random.uniform(size=(8, 1)))).astype(np.float32)
    mean, rstd = x[:, 0].copy(), np.full(8, 1 / np.sqrt(1e-5), np.float32)
    shift = (-mean * rstd)[:, None]
    xhat = (x.astype(np.float64) * rstd[:, None] + shift).astype(np.float32)
    dy, gamma = np.ones((8, 1), np.float32), np.full(1, 2, np.float32)
    given = {"x": x, "gamma": gamma, "mean": mean, "rstd": rstd, "dy": dy}
    return given, {"dgamma": (dy * xhat).sum(0)}


def constant_rows(n: int) -> Callable[[Random], tuple[Arrays, Arrays]]:
    """Normalize constant rows; mean and rstd are stored in bf16."""

    def draw(random: Random) -> tuple[Arrays, Arrays]:
        x = np.repeat(bf16(normal(random, 64, 1)), n, 1)
        gamma, beta = np.full(n, 2, np.float32), np.full(n, 3, np.float32)
        mean, rstd = moments(x)
        outputs = {"y": bf16(forward(x, gamma, beta)), "mean": bf16(mean), "rstd": bf16(rstd)}
        return {"x": x, "gamma": gamma, "beta": beta}, {
            name: values[:, 0] if name != "y" else values for name, values in outputs.items()
        }

    return draw


def from_y(random: Random) -> tuple[Arrays, Arrays]:
    """Compute x^ again from the stored bf16 y."""
    given = backward_inputs(random, 64, 512)
    given["gamma"] = np.ones(512, np.float32)
    beta = bf16(normal(random, 512) / 10)
    xhat = bf16(xhat_of(given) + beta) - beta
    dy, rstd = given["dy"], given["rstd"][:, None]
    dx = rstd * (dy - dy.mean(-1, keepdims=True) - xhat * (dy * xhat).mean(-1, keepdims=True))
    sums = {"dgamma": bf16((dy * xhat).sum(0)), "dbeta": bf16(dy.sum(0))}
    return given, {"dx": bf16(dx), **sums}


def forward_case(
    shape: tuple[int, int], change: Callable[[Floats, Mapping[str, Floats]], Floats], form: str
) -> Callable[[Random], tuple[Arrays, Arrays]]:
    """Normalize rows in a format, and change y."""

    def draw(random: Random) -> tuple[Arrays, Arrays]:
        shapes = {"x": shape, "gamma": shape[1:], "beta": shape[1:]}
        given = {name: narrowed(normal(random, *s), form) for name, s in shapes.items()}
        y = change(forward(given["x"], given["gamma"], given["beta"]), given)
        return given, {"y": narrowed(y, form)}

    return draw


def unwritten_tail(y: Floats, given: Mapping[str, Floats]) -> Floats:
    """Leave half of row 3 unwritten."""
    y[3, 32:] = 0
    return y


def race(y: Floats, given: Mapping[str, Floats]) -> Floats:
    """Read the variance for the mean in the last columns of two rows."""
    x, tail = given["x"], slice(-32, None)
    for row in (11, 40):
        rstd = moments(x[row : row + 1])[1][0, 0]
        centered = x[row, tail] - x[row].var()
        y[row, tail] = centered * rstd * given["gamma"][tail] + given["beta"][tail]
    return y


def wrapped(y: Floats, given: Mapping[str, Floats]) -> Floats:
    """Give the last 8 rows those of the start."""
    y[56:] = y[:8]
    return y


def transposed(y: Floats, given: Mapping[str, Floats]) -> Floats:
    """Read x without its strides."""
    return forward(np.ascontiguousarray(given["x"].T), given["gamma"], given["beta"])


def half_read(y: Floats, given: Mapping[str, Floats]) -> Floats:
    """Read gamma and beta in every second block of 16 columns only."""
    read = np.arange(y.shape[1]) % 32 < 16
    return forward(given["x"], given["gamma"] * read, given["beta"] * read)


def saved_rstd_lost(random: Random) -> tuple[Arrays, Arrays]:
    """Save rstd of every 32nd row only."""
    x, gamma, beta = normal(random, 64, 256), normal(random, 256), normal(random, 256)
    mean, rstd = (values[:, 0] for values in moments(x))
    saved = np.where(np.arange(64) % 32 == 0, rstd, 0).astype(np.float32)
    outputs = {"y": forward(x, gamma, beta), "mean": mean, "rstd": saved}
    return {"x": x, "gamma": gamma, "beta": beta}, outputs


def half_columns(random: Random) -> tuple[Arrays, Arrays]:
    """Leave every second warp's columns of dgamma unwritten."""
    given = backward_inputs(random, 128, 256)
    total = (given["dy"] * xhat_of(given)).sum(0) * (np.arange(256) % 64 < 32)
    return given, {"dgamma": bf16(total)}


def lost_lanes(random: Random) -> tuple[Arrays, Arrays]:
    """Halve 640 lanes, which aren't a power of two: every fifth is lost."""
    x, gamma = bf16(normal(random, 17, 5120)), bf16(normal(random, 5120))
    lanes = (x.reshape(17, 640, 8) ** 2).sum(-1)
    half = 320
    while half:
        lanes[:, :half] += lanes[:, half : 2 * half]
        half //= 2
    y = x / np.sqrt(lanes[:, :1] / np.float32(5120) + EPSILON) * gamma
    return {"x": x, "gamma": gamma}, {"y": bf16(y)}


def other_rows_sum(random: Random) -> tuple[Arrays, Arrays]:
    """Take row j's s2 in column j of a block of 32 rows."""
    x, gamma, dy = normal(random, 1024, 32), normal(random, 32), normal(random, 1024, 32)
    rstd = (1 / np.sqrt((x * x).mean(-1) + EPSILON)).astype(np.float32)
    xhat = x * rstd[:, None]
    s2 = (dy * gamma * xhat).mean(-1)
    wrong = np.repeat(s2.reshape(32, 1, 32), 32, 1).reshape(1024, 32)
    dx = rstd[:, None] * (dy * gamma - xhat * wrong)
    return {"x": x, "gamma": gamma, "rstd": rstd, "dy": dy}, {"dx": dx}


def tf32_input(random: Random) -> tuple[Arrays, Arrays]:
    """Cut x to 10 bits first."""
    x, gamma = normal(random, 32, 1024), normal(random, 1024)
    cut = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return {"x": x, "gamma": gamma}, {"y": rms(cut, gamma)}


def residual(kernel_rounds: bool) -> Callable[[Random], tuple[Arrays, Arrays]]:
    """Round a fused residual sum to bf16 in the kernel only, or in the test's inputs only."""

    def draw(random: Random) -> tuple[Arrays, Arrays]:
        a, b = bf16(normal(random, 32, 1024)), bf16(3 * normal(random, 32, 1024))
        gamma = bf16(normal(random, 1024))
        used, given = (bf16(a + b), a + b) if kernel_rounds else (a + b, bf16(a + b))
        return {"x": given, "gamma": gamma}, {"y": bf16(rms(used, gamma))}

    return draw


CASES: Final[Mapping[str, Case]] = {
    "layernorm_fw-32x1000-merged_halves-bf16": Case(merged_halves),
    "layernorm_bw-1025x32-missing_row-bf16": Case(missing_row, "small"),
    "layernorm_bw-128x256-stored_for_dgamma_0.5-bf16": Case(truncated_statistics(0.5), "small"),
    "layernorm_bw-128x256-stored_for_dgamma_5-bf16": Case(truncated_statistics(5)),
    "layernorm_bw-128x256-stored_for_dgamma_30-bf16": Case(truncated_statistics(30)),
    "layernorm_bw-8x1-cancels-fp32": Case(cancelling),
    "layernorm_fw-64x1-constant_rows-bf16": Case(constant_rows(1), "right", group=""),
    "layernorm_fw-64x256-constant_rows-bf16": Case(constant_rows(256), "right", group=""),
    "layernorm_bw-64x512-from_y-bf16": Case(from_y, "small", group="16-bit-storing"),
    "layernorm_fw-64x64-unwritten_tail-fp16": Case(
        forward_case((64, 64), unwritten_tail, "fp16"), "localized", "place"
    ),
    "layernorm_fw-64x64-unwritten_tail-bf16": Case(
        forward_case((64, 64), unwritten_tail, "bf16"), "localized", "place"
    ),
    "layernorm_fw-256x256-transposed-fp32": Case(forward_case((256, 256), transposed, "fp32")),
    "layernorm_fw-256x256-rows_shifted-fp32": Case(
        forward_case((256, 256), lambda y, given: np.roll(y, 1, 0), "fp32")
    ),
    "layernorm_bw-128x256-half_columns-bf16": Case(half_columns),
    "layernorm_fw-32x1024-half_read-bf16": Case(forward_case((32, 1024), half_read, "bf16")),
    "rmsnorm_fw-17x5120-lost_lanes-bf16": Case(lost_lanes),
    "rmsnorm_bw-1024x32-other_rows_sum-fp32": Case(other_rows_sum),
    "layernorm_fw-64x256-race-fp32": Case(forward_case((64, 256), race, "fp32"), "localized"),
    "layernorm_fw-64x256-wrapped-fp32": Case(forward_case((64, 256), wrapped, "fp32"), "localized"),
    "layernorm_fw-64x256-saved_rstd_lost-fp32": Case(saved_rstd_lost),
    "rmsnorm_fw-32x1024-tf32_input-fp32": Case(tf32_input),
    "rmsnorm_fw-32x1024-kernel_rounds_the_sum-bf16": Case(residual(True), "small"),
    "rmsnorm_fw-32x1024-test_rounds_the_sum-bf16": Case(residual(False), "listed"),
    "layernorm_fw-16x64-right-fp32": Case(
        forward_case((16, 64), lambda y, given: y, "fp32"), "right", tolerance=(0.0, 1e-7)
    ),
}
"""Case -> its kernel."""


class Cases:
    """Each kernel on some seeds."""

    def runs(self) -> Iterator[Run]:
        """Yield all runs."""
        for name, case in CASES.items():
            for seed in range(SEEDS):
                edit = "" if case.size in ("right", "listed") else name.split("-")[2]
                yield Run("cases", "NumPy", name, seed, edit)

    def prepare(self, chosen: Sequence[Run]) -> Sequence[Run]:
        """Return all of them."""
        return chosen

    def question(self, run: Run) -> Question:
        """Return the question without an arithmetic."""
        case = CASES[run.case]
        given, _ = case.draw(np.random.default_rng(run.seed))
        rtol, atol = case.tolerance
        numerics = {"output": run.format}  # the inputs' formats are those that hold their values
        if run.format == "fp16":
            numerics["input"] = "fp16"
        kernel, parameters = run.kind, {"epsilon": 1e-5}
        if kernel.endswith("_bw"):
            has_statistics = not {"mean", "rstd"}.isdisjoint(given)
            kernel, parameters = (kernel, {}) if has_statistics else (f"{kernel}_own", parameters)
            columns = {n: given[n].reshape(-1, 1) for n in ("mean", "rstd") if n in given}
            given = {**given, **columns}
        return Question(kernel, given, numerics, parameters, {"rtol": rtol, "atol": atol})

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Return the outputs and the label."""
        case = CASES[run.case]
        _, outputs = case.draw(np.random.default_rng(run.seed))
        reason = "the test gives a rounded sum" if case.size == "listed" else ""
        return outputs, Label(case.size, case.group, reason=reason)
