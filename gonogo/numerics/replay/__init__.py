"""Replay: run a kernel's arithmetic in float64, rounding only where it stores something.

A kernel's output stands for a cell of values, half a step of its format to each side. A right
kernel's replay lies in that cell, up to the noise of what the kernel doesn't store.
"""
