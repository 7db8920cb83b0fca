"""The numerics of every registered kernel, imported when they are needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gonogo.spec.kernels.registry import KERNELS

if TYPE_CHECKING:
    from gonogo.kernels.kind import Numerics
    from gonogo.spec.test_spec import TestSpec


def numerics(test: TestSpec) -> Numerics:
    """Return the numerics of a test's kernel."""
    kernel = KERNELS[test.kernel]
    numerics_by_kernel: Mapping[str, Numerics] = importlib.import_module(kernel.numerics).NUMERICS
    return numerics_by_kernel[kernel.name]
