"""Flags and waivers over HTTP."""
