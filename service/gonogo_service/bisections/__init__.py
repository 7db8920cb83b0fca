"""Bisections."""
