"""Gauges: the stored runs of known-right and known-wrong kernels, and their reports."""
