"""Alembic migrations; `gonogo_service.operate.schema.upgrade` runs them."""
