"""Gauges: the stored runs of known-right and known-wrong kernels, and the report made of them."""
