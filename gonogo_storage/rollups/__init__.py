"""Sums over stored results, and the variants (branch and board) that they are kept for."""
