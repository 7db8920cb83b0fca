"""The comparison of an output with its expectation, compiled, in blocks of rows.

gonogo.numerics.compare defines it, in NumPy.
"""
