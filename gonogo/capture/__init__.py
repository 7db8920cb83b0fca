"""Capture the comparisons of a test suite that nobody edits, without a change of an outcome.

patches.py     replaces functions such as numpy.testing.assert_allclose, and restores them
calls.py       a call of one of them: its two sides, the gate, whether it is green
numbers.py     the statistics of two arrays, in blocks: PCC, ULP, NaN, isolated errors
weaknesses.py  why a green comparison says nothing
capturing.py   records the calls of a test, and judges them in full where a table names the kernel

It runs in other people's interpreters (Python 3.10) and needs NumPy only, once there are arrays.
"""
