"""Budgets: how far from the float64 reference a right kernel of a known dataflow may be, element by
element."""

from __future__ import annotations

from gonogo.builds import PROFILES
from gonogo.numerics.budgets.profiles import (
    BackwardTerms,
    ForwardTerms,
    backward_terms,
    forward_terms,
)

__all__ = ["PROFILES", "BackwardTerms", "ForwardTerms", "backward_terms", "forward_terms"]
