"""Arithmetic: how kernels compute, and what rounding may make of their results.

formats.py      number formats, rounding, cells
values.py       the values of single operations
sums.py         orders of additions and their noise
wormhole.py     the rules of a Tensix core of a Wormhole; matrix_unit.py, datapath.py and sfpu.py:
                inside them
program.py      how an implementation computes, as data
evaluation.py   a graph without noise: exactly or by a program, as it is or with faults
quantity.py     values with noise, shared errors and slack
elementwise.py  errors through elementwise operations and stores
reductions.py   errors through sums and selections
products.py     errors through matrix products
replay.py       a graph as a program computes it
"""

from gonogo.arithmetic.evaluation import Edit, Evaluation, exact
from gonogo.arithmetic.program import Program
from gonogo.arithmetic.quantity import TIE, Quantity, Shared
from gonogo.arithmetic.replay import Replay
from gonogo.arithmetic.values import Inputs, value_of

__all__ = [
    "TIE",
    "Edit",
    "Evaluation",
    "Inputs",
    "Program",
    "Quantity",
    "Replay",
    "Shared",
    "exact",
    "value_of",
]
