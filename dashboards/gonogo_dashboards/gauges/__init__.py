"""The pages of gauges: a test measured with right kernels and mutants."""
