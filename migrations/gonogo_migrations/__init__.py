"""Alembic migrations; `gonogo_storage.schema.upgrade` runs them."""
