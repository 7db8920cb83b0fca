"""The tensors of a seed in the regime `exact`, for every kernel that it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import backward, forward

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


def tensors(test: TestSpec, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return the drawn tensors of a seed, float32, flat: x and dy (rows, N), vectors (count,).

    The test's regime is `exact`, so the spec has checked its limits.
    """
    drawn = _DRAW[test.kernel](test, seed)
    return {name: drawn[name].astype(np.float32) for name in test.drawn_names}


_DRAW = {
    "layernorm_fw": forward.normalized,
    "groupnorm_fw": forward.normalized,
    "rmsnorm_fw": forward.root_mean_square,
    "layernorm_bw": backward.normalized,
    "rmsnorm_bw": backward.root_mean_square,
}
