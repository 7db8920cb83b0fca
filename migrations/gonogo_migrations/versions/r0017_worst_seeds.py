"""Indexes by which the worst seeds of a verdict are found, of however many a job has; how the
posterior of a bisection moved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_seed_results_tolerance": ("tolerance_ratio", sa.text("tolerance_ratio IS NOT NULL")),
    "ix_seed_results_budget": ("budget_ratio", sa.text("tolerance_ratio IS NULL")),
}


def upgrade() -> None:
    """Each row is in one of the two indexes; a large table takes its time to be read once. What
    runs the older version goes on."""
    op.add_column("bisections", sa.Column("moves", sa.JSON(), nullable=True))
    for name, (column, where) in INDEXES.items():
        op.create_index(
            name,
            "seed_results",
            ["job_id", "output", "verdict", column],
            sqlite_where=where,
            postgresql_where=where,
        )


def downgrade() -> None:
    """Drop them."""
    op.drop_column("bisections", "moves")
    for name in INDEXES:
        op.drop_index(name, "seed_results")
