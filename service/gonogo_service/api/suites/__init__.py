"""Suites, runs, and schedules over HTTP."""
