"""Forensics of rmsnorm_fw: gonogo.kernels.rows.forensics without a mean; gamma per column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.kernels.kind import Arrays
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
