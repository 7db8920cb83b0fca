"""Budgets: how far a right kernel may be from the float64 reference, element by element.

The dataflow of the kernel must be known.
"""

from __future__ import annotations

from gonogo.kernels.layernorm.arithmetic.given import GivenMoments, given_moments
from gonogo.kernels.layernorm.arithmetic.terms import (
    BackwardTerms,
    ForwardTerms,
    backward_terms,
    forward_terms,
)

__all__ = [
    "BackwardTerms",
    "ForwardTerms",
    "GivenMoments",
    "backward_terms",
    "forward_terms",
    "given_moments",
]
