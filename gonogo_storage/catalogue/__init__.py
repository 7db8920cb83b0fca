"""Tests and builds by name."""
