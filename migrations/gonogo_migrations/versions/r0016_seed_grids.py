"""A letter for each seed of a job: what the grid on its page is drawn from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A table that nothing older reads; jobs that are over get no row."""
    op.create_table(
        "seed_grids",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("letters", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_seed_grids_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_seed_grids")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("seed_grids")
