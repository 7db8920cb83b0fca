"""Devices and their changes of health; the telemetry of an attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Two tables and a column that may stay empty: what runs the older version goes on."""
    op.create_table(
        "devices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=True),
        sa.Column("pci", sa.Text(), nullable=True),
        sa.Column("firmware", sa.JSON(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("queues", sa.JSON(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("online", sa.Boolean(), nullable=False),
        sa.Column("health", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("telemetry", sa.JSON(), nullable=True),
        sa.Column("digests", sa.JSON(), nullable=True),
        sa.Column("first_heard_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
        sa.UniqueConstraint("identity", name=op.f("uq_devices_identity")),
    )
    op.create_index(op.f("ix_devices_host"), "devices", ["host"])
    op.create_table(
        "device_health",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("device_id", sa.Uuid(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_device_health_device_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_health")),
    )
    op.create_index("ix_device_health_device", "device_health", ["device_id", "id"])
    op.add_column("attempts", sa.Column("telemetry", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("attempts", "telemetry")
    op.drop_table("device_health")
    op.drop_table("devices")
