"""Overrides: what someone took on until a day; flags by owner and by build."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """A table that nothing older reads, and two indexes."""
    op.create_table(
        "overrides",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=True),
        sa.Column("names", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("builds", sa.JSON(), nullable=False),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["test_key"], ["test_specs.key"], name=op.f("fk_overrides_test_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_overrides")),
    )
    op.create_index("ix_overrides_ends", "overrides", ["ended_at", "expires_at"])
    op.create_index("ix_overrides_test", "overrides", ["test_key", "id"])
    for column in ("owner", "build"):
        op.create_index(f"ix_flags_{column}", "flags", [column, "state", "kind", "id"])


def downgrade() -> None:
    """Drop them."""
    for column in ("owner", "build"):
        op.drop_index(f"ix_flags_{column}", "flags")
    op.drop_table("overrides")
