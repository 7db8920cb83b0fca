"""Flags: open findings about tests, their evidence, their history, and the order to look at them in."""
