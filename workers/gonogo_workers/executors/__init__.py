"""Executors: the ways to run a kernel.

There is one interface and many drivers; each driver must pass the conformance suite.
"""
