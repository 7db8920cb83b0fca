"""The pages of gauges: a test measured with known-right and known-wrong kernels."""
