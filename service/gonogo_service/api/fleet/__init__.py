"""Builds, devices, and workers over HTTP."""
