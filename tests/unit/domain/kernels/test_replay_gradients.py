"""The search finds the arithmetic of gradients that a library derives from single operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.layernorm import derivations
from gonogo.kernels.layernorm.replay import BackwardRows, ColumnGradient, InputGradient
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.ladder import Finding
from gonogo.numerics.replay.program import ColumnOrder
from replay_emulations import (
    RowSums,
    composite_gradient,
    inputs,
    jax_gradient,
    jax_rms_gradient,
    moments_gradient,
    paired,
    quotient_gradient,
    running,
    shuffled,
)

EPSILON = 1e-5
ROWS, WIDTH = 70, 100
Floats = NDArray[np.float32]
Given = dict[str, Floats]
Gradient = Callable[..., dict[str, Floats]]
GRADIENTS: dict[str, Gradient] = {
    derivations.TORCH: partial(composite_gradient, library="torch"),
    derivations.TENSORFLOW: partial(composite_gradient, library="tensorflow"),
    derivations.MLX: partial(composite_gradient, library="mlx"),
    derivations.MOMENTS: moments_gradient,
    derivations.QUOTIENT: quotient_gradient,
    derivations.JAX: partial(jax_gradient, fast=False),
    derivations.FAST: partial(jax_gradient, fast=True),
}
UNCENTERED: dict[str, Gradient] = {
    derivations.TORCH: partial(composite_gradient, centered=False),
    derivations.POWER: partial(composite_gradient, centered=False, power=True),
    derivations.SQUARE: jax_rms_gradient,
    derivations.MLX: partial(composite_gradient, centered=False, library="mlx"),
    derivations.TENSORFLOW: partial(composite_gradient, centered=False, library="tensorflow"),
}
"""The same of kernels that subtract no mean."""


def climbed(
    given: Given, name: str, output: Floats, form: str, *, centered: bool = True
) -> Finding:
    """Return what the ladder finds for an output."""
    x, dy, gamma = (given[key].astype(np.float64) for key in ("x", "dy", "gamma"))
    rows = BackwardRows(x, dy, gamma, None, None, EPSILON, centered=centered)
    if name == "dx":
        return ladder.climb(InputGradient(rows), output, form, [form])
    graph = ColumnGradient(rows, weighted=name == "dgamma")
    return ladder.climb(graph, output.reshape(1, -1), form, [form])


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("product", GRADIENTS)
def test_derived_gradients_are_found_by_their_bits(product: str, form: str) -> None:
    given = inputs(ROWS, WIDTH, form)
    outputs = GRADIENTS[product](given, EPSILON, form)
    finding = climbed(given, "dx", outputs["dx"], form)
    assert finding.explained, (finding.program.name, finding.mismatch)
    assert finding.program.product == product
    assert set(finding.program.stored.values()) == {form}
    finding = climbed(given, "dgamma", outputs["dgamma"], form)
    assert finding.explained, (finding.program.name, finding.mismatch)
    assert "dy x^" in finding.program.stored


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("product", UNCENTERED)
def test_derived_gradients_without_a_mean_are_found_by_their_bits(product: str, form: str) -> None:
    given = inputs(ROWS, WIDTH, form)
    outputs = UNCENTERED[product](given, EPSILON, form)
    for name, quantity in (("dx", "P x"), ("dgamma", "dy x^")):
        finding = climbed(given, name, outputs[name], form, centered=False)
        assert finding.explained, (finding.program.name, finding.mismatch)
        assert {form} == set(finding.program.stored.values())
        assert quantity in finding.program.stored
        assert not any("mean" in stored for stored in finding.program.stored)
    factor = 0.99 if form == "bf16" else 1.001
    off = round_to(outputs["dx"].astype(np.float64) * factor, form)
    assert not climbed(given, "dx", off, form, centered=False).explained
    if (product, form) == (derivations.SQUARE, "bf16"):  # it is far off, whatever the product
        other = UNCENTERED[product](given | {"gamma": np.roll(given["gamma"], 1)}, EPSILON, form)
        assert not climbed(given, "dx", other["dx"], form, centered=False).explained


@pytest.mark.parametrize("product", GRADIENTS)
def test_a_gradient_that_is_off_is_no_arithmetic(product: str) -> None:
    given = inputs(ROWS, WIDTH, "fp16")
    outputs = GRADIENTS[product](given, EPSILON, "fp16")
    dx = round_to(outputs["dx"].astype(np.float64) * 1.001, "fp16")
    assert not climbed(given, "dx", dx, "fp16").explained
    if product != derivations.TORCH:  # the others are far off, whatever the product
        return
    other = GRADIENTS[product](given | {"gamma": np.roll(given["gamma"], 1)}, EPSILON, "fp16")
    assert not climbed(given, "dx", other["dx"], "fp16").explained
    short = {name: given[name][:-1] if name in ("x", "dy") else given[name] for name in given}
    missing = GRADIENTS[product](short, EPSILON, "fp16")["dgamma"]
    assert not climbed(given, "dgamma", missing, "fp16").explained


@pytest.mark.parametrize("product", [derivations.TORCH, derivations.JAX])
def test_a_derived_gradient_with_one_stale_row_is_judged(product: str) -> None:
    # it reproduces the 16 rows that are sampled, so a search starts from what it stores
    given = inputs(33, WIDTH, "fp16")
    dx = GRADIENTS[product](given, EPSILON, "fp16")["dx"]
    assert climbed(given, "dx", dx, "fp16").explained
    dx[1] = dx[0]
    assert not climbed(given, "dx", dx, "fp16").explained


def test_columns_of_jax_are_windows_of_rows() -> None:
    given = inputs(ROWS, WIDTH, "bf16")
    dbeta = jax_gradient(given, EPSILON, "bf16", fast=False)["dbeta"]
    finding = climbed(given, "dbeta", dbeta, "bf16")
    assert finding.explained
    assert finding.program.column_order is ColumnOrder.windows


def test_one_signed_columns_that_stall_are_replayed_in_their_order() -> None:
    given = inputs(900, 40, "bf16")
    given["dy"] = np.abs(given["dy"])
    stalled = running(given["dy"], "bf16")
    exact = given["dy"].astype(np.float64).sum(axis=0)
    assert stalled.mean() < 0.85 * exact.mean()
    finding = climbed(given, "dbeta", stalled, "bf16")
    assert finding.explained
    assert finding.program.column_order is ColumnOrder.rows
    short = running(given["dy"][:-200], "bf16")
    assert not climbed(given, "dbeta", round_to(0.9 * short, "bf16"), "bf16").explained


@pytest.mark.parametrize(
    ("product", "saved"), [(derivations.TORCH, "rstd"), (derivations.QUOTIENT, "root")]
)
def test_a_compiled_gradient_has_what_its_forward_pass_saves(product: str, saved: str) -> None:
    given = inputs(ROWS, WIDTH, "bf16")
    x, gamma, dy = (given[name].astype(np.float64) for name in ("x", "gamma", "dy"))
    x = given["x"] = round_to(x + 4, "bf16")
    mean = x.mean(axis=1, keepdims=True)
    root = np.sqrt(x.astype(np.float64).var(axis=1, keepdims=True) + EPSILON)
    rstd = 1 / round_to(root, "bf16") if saved == "root" else round_to(1 / root, "bf16")
    normalized = (x - round_to(mean, "bf16")) * rstd
    direct = rstd * (dy * gamma - normalized * (dy * gamma * normalized).mean(1, keepdims=True))
    dx = round_to(direct - direct.mean(axis=1, keepdims=True), "bf16")
    finding = climbed(given, "dx", dx, "bf16")
    assert finding.explained, (finding.program.name, finding.mismatch)
    assert finding.program.product == product
    assert set(finding.program.stored) == {"mean", saved}
    other = round_to(direct, "bf16")  # without the mean's gradient
    assert not climbed(given, "dx", other, "bf16").explained


@pytest.mark.parametrize("product", [derivations.JAX, derivations.FAST, derivations.SQUARE])
@pytest.mark.parametrize(("sums", "width"), [(shuffled, 33), (paired, 300)])
def test_a_gradient_of_xla_on_a_gpu_divides_an_unrounded_rstd(
    product: str, sums: RowSums, width: int
) -> None:
    centered = product != derivations.SQUARE
    gradient = GRADIENTS[product] if centered else UNCENTERED[product]
    given = inputs(ROWS, width, "bf16")
    dx = gradient(given, EPSILON, "bf16", on_gpu=sums)["dx"]
    finding = climbed(given, "dx", dx, "bf16", centered=centered)
    assert finding.explained, (finding.program.name, finding.mismatch)
    assert finding.program.product == product
    assert "rstd" in finding.program.stored
    assert "rstd divided" not in finding.program.stored
    off = round_to(dx.astype(np.float64) * 0.99, "bf16")
    assert not climbed(given, "dx", off, "bf16", centered=centered).explained
    rolled = given | {"gamma": np.roll(given["gamma"], 1)}
    other = gradient(rolled, EPSILON, "bf16", on_gpu=sums)["dx"]
    assert not climbed(given, "dx", other, "bf16", centered=centered).explained


@pytest.mark.parametrize("variance", ["x", "x - mean"])
def test_stored_mean_and_rstd_are_found(variance: str) -> None:
    given = inputs(ROWS, WIDTH, "fp16")
    x, gamma, dy = given["x"] + np.float32(4), given["gamma"], given["dy"]
    x = given["x"] = round_to(x, "fp16")
    mean = x.mean(axis=1, keepdims=True)
    stored = round_to(mean, "fp16")
    deviations = x - (mean if variance == "x" else stored)
    rstd = round_to(1 / np.sqrt((deviations**2).mean(axis=1, keepdims=True) + EPSILON), "fp16")
    normalized = (x - stored) * rstd
    product = dy * gamma
    s1 = product.mean(axis=1, keepdims=True)
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    dx = round_to((product - s1 - normalized * s2) * rstd, "fp16")
    finding = climbed(given, "dx", dx, "fp16")
    assert finding.explained
    assert set(finding.program.stored) == {"mean", "rstd"}
