"""Exact inputs: on them every right arithmetic gives the same bits, and wrong logic gives others.

inputs.py    the tensors of a norm, from a seed
elements.py  which elements of an output no rounding changes, for any kernel
judging.py   an output beside the exact one, and the fault that explains the difference
"""

from gonogo.exactness.elements import exact_elements
from gonogo.exactness.inputs import NORMS, exact_inputs
from gonogo.exactness.judging import ExactJudgment, judge_exact

__all__ = ["NORMS", "ExactJudgment", "exact_elements", "exact_inputs", "judge_exact"]
