"""Tokens, sessions, idempotency keys, and the audit log."""
