"""Checks of this repository's own layout and words, run by `make lint`."""
