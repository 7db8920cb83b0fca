"""The statistics of every output of a test, by the numerics of its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import registry
from gonogo.numerics.expectation import Expectation
from gonogo.spec.arithmetic_names import budget_of

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]


def expectations(test: TestSpec, given: Arrays, arithmetic: str | None) -> dict[str, Expectation]:
    """Return the expectation of every output, from what the device was given.

    arithmetic: the arithmetic model of the kernel, whose budget is taken; None is the generic one.
    """
    return registry.numerics(test).expectations(test, given, budget_of(arithmetic))


def statistics(
    test: TestSpec,
    raw: Arrays,
    given: Arrays,
    outputs: Mapping[str, NDArray[np.float32]],
    arithmetic: str | None,
) -> dict[str, Any]:
    """Return the statistics of every output. `outputs` are matrices (see judging.matrix)."""
    return registry.numerics(test).statistics(test, raw, given, outputs, budget_of(arithmetic))
