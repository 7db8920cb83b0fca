"""Alembic migrations; `gonogo_storage.ops.schema.upgrade` runs them."""
