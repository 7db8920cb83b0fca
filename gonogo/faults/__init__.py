"""Faults: edits of a kernel's graph, which is what wrong kernels compute.

changes.py  wrong values in the place of right ones
table.py    every fault that a graph can have
"""
