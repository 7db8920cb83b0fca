"""The fast path: references, budgets and every statistic in one compiled pass over the rows.

Tests hold it to the NumPy definition. Counts, maxima of errors, the mismatch count and the ulp
percentile equal those of the definition bit for bit where the references do. Sums, and what is
derived from them, agree to float64 rounding: they are added in another, fixed, order.
"""
