"""Sweeps: the shapes and inputs at which kernels break, and the smallest that still fails.

It is pure: the caller runs and judges, and says when the time is over.
"""
