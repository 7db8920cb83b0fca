"""Badges for READMEs: the state of a test, a suite or a branch as an SVG picture."""
