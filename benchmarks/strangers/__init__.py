"""Strangers: right and wrong LayerNorm kernels, written by someone who had not seen how GoNoGo finds faults. `python -m benchmarks.strangers`."""
