"""Chaos: a whole service of real processes under random faults, and what must hold afterwards.

`python -m benchmarks.chaos`. Each fault is a small function in `faults`; `checks` are the promises.
"""
