"""Kinds of kernels, a folder for each, and what kinds that normalize rows share."""
