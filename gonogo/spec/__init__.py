"""The definition of a test: spec, selection, suite, tolerance, build and verdict.

Also the canonical JSON that keys are made of. Nothing here imports NumPy.
"""
