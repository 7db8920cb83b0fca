"""Tokens, the audit log, health, readiness, and metrics over HTTP."""
