"""Chaos: a whole service of real processes under random faults, and what must hold afterwards.

`python -m benchmarks.chaos`. `faults` is the table of faults; `checks` are the promises.
"""
