"""Runs kernels and test programs on this machine, without a server."""
