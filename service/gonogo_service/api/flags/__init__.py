"""Flags and overrides over HTTP."""
