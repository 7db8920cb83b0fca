"""Answers to GitHub: what was told of each subject, and the comment of each pull request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
DUE = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """Two tables that nothing older reads."""
    op.create_table(
        "github_answers",
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("told", sa.JSON(), nullable=False),
        sa.Column("check_id", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["subject_id"], ["ci_subjects.id"], name=op.f("fk_github_answers_subject_id")
        ),
        sa.PrimaryKeyConstraint("subject_id", name=op.f("pk_github_answers")),
    )
    op.create_index(
        "ix_github_answers_due",
        "github_answers",
        ["due_at"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_table(
        "github_comments",
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("pull_request", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("repository", "pull_request", name=op.f("pk_github_comments")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("github_comments")
    op.drop_table("github_answers")
