"""Strangers: LayerNorm kernels, right and wrong, by someone who had not seen how faults are found:
`python -m benchmarks.strangers`.
"""
