"""Executors: the ways to run a kernel. One interface, many drivers; each must pass the conformance
suite.
"""
