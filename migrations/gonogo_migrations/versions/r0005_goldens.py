"""The canaries of each device and the golden digest per build and architecture; since when a
device's health is what it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Two tables and a column that may stay empty: what runs the older version goes on."""
    op.create_table(
        "goldens",
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("first_device", sa.Text(), nullable=False),
        sa.Column("second_device", sa.Text(), nullable=True),
        sa.Column("learned_at", TIME, nullable=False),
        sa.Column("confirmed_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("executor", "build", "arch", name=op.f("pk_goldens")),
    )
    op.create_table(
        "canaries",
        sa.Column("device_id", sa.Uuid(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("accused", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name=op.f("fk_canaries_device_id")),
        sa.PrimaryKeyConstraint("device_id", "executor", "build", "arch", name=op.f("pk_canaries")),
    )
    op.create_index("ix_canaries_build", "canaries", ["executor", "build", "arch"])
    op.add_column("devices", sa.Column("health_at", TIME, nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("devices", "health_at")
    op.drop_table("canaries")
    op.drop_table("goldens")
