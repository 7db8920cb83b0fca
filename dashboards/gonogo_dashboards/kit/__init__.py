"""Shared parts of all pages: words, assets, routes, rows of lists, and base templates."""
