"""Flags: findings about tests, their evidence, their history, and the order for triage."""
