"""The fast path of replays of programs that store nothing, row by row and without large arrays.

`orders`, `quantity`, `cells` and the graphs of the kernels are the definition. Tests hold this path
to it: the operations of an element are the same ones in the same order, so that distances agree to
float64 rounding.
"""
