"""Budgets: how far from the float64 reference a right kernel of a known dataflow may be, element by
element.
"""

from __future__ import annotations

from gonogo.kernels.layernorm.arithmetic.terms import (
    BackwardTerms,
    ForwardTerms,
    backward_terms,
    forward_terms,
)
from gonogo.spec.builds import ARITHMETICS

__all__ = ["ARITHMETICS", "BackwardTerms", "ForwardTerms", "backward_terms", "forward_terms"]
