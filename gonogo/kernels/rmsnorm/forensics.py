"""Forensics of rmsnorm_fw: gonogo.kernels.rows.forensics without a mean, gamma a value a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.kernels.kind import Arrays
from gonogo.kernels.rows import forensics
from gonogo.numerics.diagnosis import Diagnosis

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


def diagnose(test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
    """Which tiles the mean square sums, its divisor and epsilon, a mean that was subtracted,
    gamma.
    """
    return forensics.diagnose(
        test, given, outputs, groups=1, centred=False, noun="mean square", channel="column"
    )
