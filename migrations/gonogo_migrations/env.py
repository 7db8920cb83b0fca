"""Alembic's environment: migrate the connection that `schema.upgrade` hands over.

It works in that connection's transaction (gonogo_service.operate.schema).
"""

from __future__ import annotations

from alembic import context

from gonogo_service.kit.database.base import Base

connection = context.config.attributes["connection"]
# render_as_batch: SQLite can't alter tables, so Alembic copies them
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
