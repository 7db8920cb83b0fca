"""Forensics of RMSNorm: those of LayerNorm without a mean.

Forward they are gonogo.kernels.rows.forensics with a gamma per column, backward
gonogo.kernels.layernorm.forensics without s1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.kernels.kind import Arrays
from gonogo.kernels.layernorm import forensics as layernorm
from gonogo.kernels.rows import forensics
from gonogo.numerics.diagnosis import Diagnosis

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


def diagnose(test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
    """Return which terms are wrong: the tiles of the mean square, its divisor, epsilon or gamma.

    A mean that was subtracted is named, too.
    """
    return forensics.diagnose(
        test, given, outputs, groups=1, centred=False, noun="mean square", channel="column"
    )


def diagnose_gradients(test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
    """Return which terms of dx and dgamma are wrong: s2 by tiles, gamma, a factor, row tiles.

    A mean or s1 that was subtracted is named, too.
    """
    return layernorm.diagnose(test, given, outputs, centered=False)
