"""Webhooks: what happens here, told to others."""
