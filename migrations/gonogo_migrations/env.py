"""Alembic's environment: migrates the connection that `gonogo_storage.ops.schema.upgrade` hands over,
in its transaction.
"""

from __future__ import annotations

from alembic import context

from gonogo_storage.tables import Base

connection = context.config.attributes["connection"]
# render_as_batch: SQLite can't alter tables, so Alembic copies them
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
