"""The change points of each variant and what became of it from build to build, so that its page
needn't compute them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table; the background fills it. What runs the older version goes on."""
    op.create_table(
        "trends",
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("build_line", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("over", sa.Text(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["test_key"], ["test_specs.key"], name=op.f("fk_trends_test_key")),
        sa.PrimaryKeyConstraint(
            "test_key", "build_line", "arch", "board", "over", name=op.f("pk_trends")
        ),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("trends")
