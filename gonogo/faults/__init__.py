"""Faults: edits of a kernel's graph, which is what wrong kernels compute.

changes.py  wrong values in the place of right ones
sums.py     faults of sums; padding.py: of those that count padding
table.py    every fault that a graph can have
"""
