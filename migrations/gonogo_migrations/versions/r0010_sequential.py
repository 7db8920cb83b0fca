"""Sequential and suspect seeds of a job: where the decision stands, what it was, and what suspect
seeds say together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NAMES = ("sequential", "stop", "suspects")


def upgrade() -> None:
    """Columns that may stay empty: what runs the older version goes on."""
    for name in NAMES:
        op.add_column("jobs", sa.Column(name, sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("reach", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in (*NAMES, "reach"):
        op.drop_column("jobs", name)
