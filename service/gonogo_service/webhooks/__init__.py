"""Outgoing webhooks: messages about events to subscribers."""
