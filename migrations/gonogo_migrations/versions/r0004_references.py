"""A job may name a build that its own is compared with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Jobs until now are compared with float64 alone: null."""
    op.add_column("jobs", sa.Column("reference", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("jobs", "reference")
