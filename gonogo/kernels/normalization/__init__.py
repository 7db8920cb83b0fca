"""The replay of kernels that normalize rows: statistics and outputs of each program."""
