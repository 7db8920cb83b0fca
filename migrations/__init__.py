"""Alembic migrations; `storage.schema.upgrade` runs them."""
