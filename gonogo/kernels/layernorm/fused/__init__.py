"""The fast path: references, budgets and every statistic in one pass over the rows, compiled; held
to the NumPy definition by tests.

What it claims: counts, maxima of errors, the mismatch count and the ulp percentile are those of the
definition bit for bit where the references are; sums, and what is made of them, agree to float64
rounding (they are added in another, fixed, order).
"""
