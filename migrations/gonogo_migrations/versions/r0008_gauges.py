"""Gauges and their rows; a job says whether it is one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Two tables, and a column with a default for what the older version goes on to write."""
    op.add_column("jobs", sa.Column("kind", sa.Text(), nullable=False, server_default="seeds"))
    op.create_table(
        "gauges",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("build_line", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("search", sa.Boolean(), nullable=False),
        sa.Column("elsewhere", sa.JSON(), nullable=False),
        sa.Column("parts", sa.JSON(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("sharpness", sa.Text(), nullable=True),
        sa.Column("misses", sa.JSON(), nullable=True),
        sa.Column("words", sa.Text(), nullable=True),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["id"], ["jobs.id"], name=op.f("fk_gauges_id")),
        sa.ForeignKeyConstraint(["test_key"], ["test_specs.key"], name=op.f("fk_gauges_test_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gauges")),
    )
    op.create_index("ix_gauges_test", "gauges", ["test_key", "id"])
    op.create_table(
        "gauge_results",
        sa.Column("gauge_id", sa.Uuid(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=True),
        sa.Column("row", sa.JSON(), nullable=False),
        sa.Column("stored_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["gauge_id"], ["gauges.id"], name=op.f("fk_gauge_results_gauge_id")
        ),
        sa.PrimaryKeyConstraint("gauge_id", "seed", "part", name=op.f("pk_gauge_results")),
    )


def downgrade() -> None:
    """Drop them. Hidden jobs lose what they were of and are dropped with what belongs to them."""
    op.drop_table("gauge_results")
    op.drop_table("gauges")
    for table, column in (
        ("artifacts", "job_id"),
        ("attempts", "job_id"),
        ("chunks", "job_id"),
        ("events", "job_id"),
        ("jobs", "id"),
    ):
        op.execute(
            f"DELETE FROM {table} WHERE {column} IN (SELECT id FROM jobs WHERE kind = 'gauge')"
        )
    op.drop_column("jobs", "kind")
