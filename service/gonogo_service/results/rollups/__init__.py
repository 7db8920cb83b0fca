"""Sums over stored results, and variants: a test on a branch and a board."""
