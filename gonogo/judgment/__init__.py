"""Judgment: is a kernel's error rounding, which term is wrong, and where.

cells.py        how far a replay lies outside the cells of an output
shared.py       errors that groups share; common.py: factors that all groups share
fits.py         an output beside what one arithmetic gives for it; blocks.py: of large ones in parts
candidates.py   the arithmetics that compete, from sharp to wide
search.py       values that a kernel stores in 16 bits
wide.py         what a wide arithmetic may explain
diagnosis.py    which fault of gonogo.faults an output has; effects.py, tiles.py, places.py
judging.py      the order in which explanations compete; verdict.py: the answer
reach.py        what a red output may have that its explanation would hide
limits.py       what would not be seen; advice.py: the tolerance to take
pooling.py      several seeds; pairs.py: two builds on equal seeds
"""

from gonogo.judgment.fits import Candidate
from gonogo.judgment.judging import judge
from gonogo.judgment.pooling import pooled_entries
from gonogo.judgment.tolerance import Tolerance
from gonogo.judgment.verdict import Judgment, OutputJudgment

__all__ = ["Candidate", "Judgment", "OutputJudgment", "Tolerance", "judge", "pooled_entries"]
