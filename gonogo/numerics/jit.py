"""The one switch between numba and plain NumPy: `jit` compiles when numba is there, else leaves a function alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:  # numba is an accelerator, never a requirement: NumPy is the definition
    HAVE_NUMBA = False
else:
    HAVE_NUMBA = True


def jit(function: F) -> F:
    """Compile a per-block loop: nogil (several host threads run it at once), cached on disk, IEEE semantics.

    Never `parallel=True` (numba's workqueue layer aborts the process when entered from several threads) and never
    `fastmath` (it would change the arithmetic that is the subject here). `error_model="numpy"`: x/0 is inf, as in NumPy.
    """
    if not HAVE_NUMBA:
        return function
    compiled: Any = njit(nogil=True, cache=True, error_model="numpy")(function)
    return cast(F, compiled)
