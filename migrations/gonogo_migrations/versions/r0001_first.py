"""The first schema: every table, as the models say.

Nothing is released yet, so the models are the first schema. The first release freezes it: Alembic's
autogenerate, run against an empty database, writes the `create_table` calls that replace these two
functions. From then on each change of a model is a revision of its own.
"""

from __future__ import annotations

from alembic import op

from gonogo_service.models import METADATA

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    METADATA.create_all(op.get_bind())


def downgrade() -> None:
    """Drop every table."""
    METADATA.drop_all(op.get_bind())
