"""Jobs may run tests that exist already: what each test says of itself, and how many said what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Results and jobs of kernels have none: null."""
    op.add_column("jobs", sa.Column("outcomes", sa.JSON(), nullable=True))
    op.add_column("seed_results", sa.Column("outcome", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget them."""
    op.drop_column("seed_results", "outcome")
    op.drop_column("jobs", "outcomes")
