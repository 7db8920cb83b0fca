"""Inputs whose x is constant in every row: what is computed from x^ = 0 says nothing about x^."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import registry
from gonogo.kernels.layernorm.replay import InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.numerics.formats import half_ulp
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import CONSTANT_X

DEPENDENT = ("y", "rstd", "dx", "dgamma")
"""The outputs that are computed from x^ or from rstd."""


def add_to_limits(
    test: TestSpec, given: Mapping[str, NDArray[Any]], statistics: Mapping[str, dict[str, Any]]
) -> None:
    """Add x to the unseen terms of outputs that are computed from x^, where no row shows any.

    statistics: output -> its statistics, of the outputs that rounding explains.
    """
    names = [name for name in DEPENDENT if name in statistics]
    if not names or "x" not in given or not (reason := _reason(test, given)):
        return
    for name in names:
        numbers = statistics[name]
        numbers["unseen_terms"] = [CONSTANT_X, *(numbers.get("unseen_terms") or ())]
        numbers["detection_limits"] = [
            f"{CONSTANT_X} ({reason})",
            *(numbers.get("detection_limits") or ()),
        ]


def _reason(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> str:
    """Return why no row says anything about x; "" where one does, or may."""
    x = given["x"].reshape(test.rows, -1)
    if not (_is_constant(x[:1]) and _is_constant(x)):
        return ""
    for graph in registry.numerics(test).graphs(test, given).values():
        if isinstance(graph, NormalizedRows | InputGradient):
            if isinstance(graph, InputGradient) and graph.rows.is_given:
                return ""
            if graph.rows.centered:
                return "it is constant in every row"
            return "" if x.any() else "it is 0 in every row"
    return ""


def _is_constant(x: NDArray[Any]) -> bool:
    """Return whether each row (rows, N) varies by less than a kernel's rounding of its mean.

    fp32 rounds a mean by up to half a unit in the last place, and that is what such a row's
    variance is made of.
    """
    wide = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):  # an infinite x varies
        return bool((wide.std(axis=1) <= half_ulp(wide.mean(axis=1), "fp32")).all())
