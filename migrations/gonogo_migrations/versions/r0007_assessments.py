"""What the numbers say of each variant; the changes of flags; jobs are found by their full
variant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Two tables, an index, and a column that may stay empty: what runs the older version goes
    on."""
    op.create_table(
        "assessments",
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("build_line", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("subject_key", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("build_sequence", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("stability", sa.Text(), nullable=False),
        sa.Column("sharpness", sa.Text(), nullable=False),
        sa.Column("hollow", sa.Boolean(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("predicted", sa.Double(), nullable=True),
        sa.Column("seeds", sa.Integer(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("assessed_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["test_key"], ["test_specs.key"], name=op.f("fk_assessments_test_key")
        ),
        sa.PrimaryKeyConstraint(
            "test_key", "build_line", "arch", "board", name=op.f("pk_assessments")
        ),
    )
    op.create_index("ix_assessments_stability", "assessments", ["stability", "test_key"])
    op.create_index("ix_assessments_subject", "assessments", ["subject_key"])
    op.create_table(
        "flag_changes",
        sa.Column("flag_id", sa.Uuid(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["flag_id"], ["flags.id"], name=op.f("fk_flag_changes_flag_id")),
        sa.PrimaryKeyConstraint("flag_id", "version", name=op.f("pk_flag_changes")),
    )
    op.add_column("flags", sa.Column("quiet_after", sa.Uuid(), nullable=True))
    op.create_index("ix_jobs_variant", "jobs", ["test_key", "build_line", "arch", "board", "id"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_jobs_variant", "jobs")
    op.drop_column("flags", "quiet_after")
    op.drop_table("flag_changes")
    op.drop_table("assessments")
