"""What tests did per day, build, device and context, and jobs as a whole; how far each job is in
these sums."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def _sums() -> list[sa.Column[Any]]:
    whole = [
        sa.Column(name, sa.BigInteger(), nullable=False)
        for name in ("seeds", "empty", "duration_us")
    ]
    return [
        *whole,
        *(
            sa.Column(name, sa.JSON(), nullable=False)
            for name in ("counts", "explanations", "outcomes", "sketches")
        ),
    ]


def upgrade() -> None:
    """Three new tables, empty: no job is in them yet, and `gonogo_storage.rollups.rebuild.catch_up`
    adds what is missing in small transactions.

    `gonogo db upgrade` runs it after the migration, and `gonogo background` from time to time: also
    for rows that processes of the older version write meanwhile.
    """
    op.create_table(
        "day_rollups",
        sa.Column("key", sa.Uuid(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("build_line", sa.Text(), nullable=False),
        sa.Column("build_sequence", sa.BigInteger(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        *_sums(),
        sa.PrimaryKeyConstraint("key", "shadow", name=op.f("pk_day_rollups")),
    )
    op.create_index("ix_day_rollups_test", "day_rollups", ["test_key", "build"])
    op.create_table(
        "job_tallies",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        *_sums(),
        sa.PrimaryKeyConstraint("job_id", "output", "shadow", name=op.f("pk_job_tallies")),
    )
    op.create_table(
        "rolled",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("upto", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "shadow", name=op.f("pk_rolled")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("rolled")
    op.drop_table("job_tallies")
    op.drop_table("day_rollups")
