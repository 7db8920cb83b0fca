"""What each device did by minute and hour; where an overview finds the days of the roll-ups, and a
device its attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

COUNTS = ("seeds", "busy_us", "attempts", "golden", "first", "differs", "failed")


def upgrade() -> None:
    """A table that nothing older reads, empty: what devices did before is not made up. Two
    indexes."""
    op.create_table(
        "device_periods",
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("size_s", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS),
        sa.Column("telemetry", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("device", "size_s", "start", name=op.f("pk_device_periods")),
    )
    op.create_index("ix_device_periods_start", "device_periods", ["size_s", "start"])
    op.create_index("ix_attempts_device", "attempts", ["device", "id"])
    op.create_index("ix_day_rollups_day", "day_rollups", ["day", "output"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_day_rollups_day", "day_rollups")
    op.drop_index("ix_attempts_device", "attempts")
    op.drop_table("device_periods")
