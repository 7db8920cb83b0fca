"""Forensics of groupnorm_fw: gonogo.kernels.rowterms over rows of groups, gamma and beta a value a channel.

A tile is 32 elements of a group in the order of the tensor, a row is a group of a sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.kernels import rowterms
from gonogo.kernels.kind import Arrays
from gonogo.numerics.forensics.model import Diagnosis

if TYPE_CHECKING:
    from gonogo.tests import TestSpec


def diagnose(test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
    """Which tiles the mean and the variance sum, divisor and epsilon, gamma and beta."""
    groups = test.parameter("num_groups")
    return rowterms.diagnose(test, given, outputs, groups=groups, centred=True, noun="variance", channel="channel")
