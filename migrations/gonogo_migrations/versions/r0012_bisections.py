"""Bisections: searches for the build that changed a test, and their probes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
OPEN = sa.text("state = 'running'")


def upgrade() -> None:
    """Two tables that nothing older reads."""
    op.create_table(
        "bisections",
        sa.Column("id", sa.Uuid(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("state", "signal", "expect")),
        sa.Column("several", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("owner", "test_key", "queue")),
        *(sa.Column(name, sa.JSON(), nullable=False) for name in ("builds", "request")),
        sa.Column("seed_start", sa.BigInteger(), nullable=False),
        *(
            sa.Column(name, sa.Integer(), nullable=False)
            for name in ("max_runs", "runs", "version")
        ),
        *(sa.Column(name, sa.JSON(), nullable=False) for name in ("tracks", "findings")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("conclusion", "words", "error")),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("finished_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["test_key"], ["test_specs.key"], name=op.f("fk_bisections_test_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisections")),
    )
    op.create_index(
        "ix_bisections_open", "bisections", ["id"], sqlite_where=OPEN, postgresql_where=OPEN
    )
    op.create_index("ix_bisections_test", "bisections", ["test_key", "id"])
    op.create_table(
        "bisection_probes",
        sa.Column("bisection_id", sa.Uuid(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("number", "place")),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        *(sa.Column(name, sa.Boolean(), nullable=True) for name in ("red", "wrong")),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_bisection_probes_bisection_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_bisection_probes_job_id")),
        sa.PrimaryKeyConstraint("bisection_id", "number", name=op.f("pk_bisection_probes")),
        sa.UniqueConstraint("job_id", name=op.f("uq_bisection_probes_job_id")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("bisection_probes")
    op.drop_table("bisections")
