"""Deliveries from GitHub and other CI, the rules about them, and what each run that they started is
for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
DUE = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """Three tables that nothing older reads."""
    op.create_table(
        "inbound_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("delivery", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("repository", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("received_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inbound_deliveries")),
        sa.UniqueConstraint(
            "source", "delivery", name=op.f("uq_inbound_deliveries_source_delivery")
        ),
    )
    op.create_index(
        "ix_inbound_deliveries_due",
        "inbound_deliveries",
        ["due_at"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_index("ix_inbound_deliveries_repository", "inbound_deliveries", ["repository", "id"])
    op.create_table(
        "ci_rules",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("archived_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_ci_rules")),
    )
    op.create_table(
        "ci_subjects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("delivery_id", sa.Uuid(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=True),
        sa.Column("suite_key", sa.Text(), nullable=True),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("installation", sa.BigInteger(), nullable=True),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("pull_request", sa.Integer(), nullable=True),
        sa.Column("fork", sa.Boolean(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text(), nullable=True),
        sa.Column("head_build", sa.Text(), nullable=True),
        sa.Column("base_build", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("base_run_id", sa.Uuid(), nullable=True),
        sa.Column("gauges", sa.JSON(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("occurred_at", TIME, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["inbound_deliveries.id"], name=op.f("fk_ci_subjects_delivery_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ci_subjects")),
        sa.UniqueConstraint(
            "delivery_id", "rule", "suite", name=op.f("uq_ci_subjects_delivery_id_rule_suite")
        ),
    )
    op.create_index("ix_ci_subjects_run", "ci_subjects", ["run_id"])
    op.create_index("ix_ci_subjects_base_run", "ci_subjects", ["base_run_id"])
    op.create_index("ix_ci_subjects_head", "ci_subjects", ["repository", "head_sha"])
    op.create_index(
        "ix_ci_subjects_pull_request", "ci_subjects", ["repository", "pull_request", "id"]
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("ci_subjects", "ci_rules", "inbound_deliveries"):
        op.drop_table(table)
