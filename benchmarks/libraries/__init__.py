"""Kernels of other libraries and readable NumPy ones with edits, for the corpus."""
