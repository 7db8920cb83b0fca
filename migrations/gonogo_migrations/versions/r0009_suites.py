"""Suites, runs, schedules with their due times, and rejudgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
OPEN = sa.text("state IN ('running', 'cancelling')")
DUE = sa.text("next_at IS NOT NULL")


def upgrade() -> None:
    """New tables only: what runs the older version goes on."""
    op.create_table(
        "suites",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("archived_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_suites")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("suite_version", sa.Integer(), nullable=True),
        sa.Column("schedule_id", sa.Uuid(), nullable=True),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("builds", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("commit", sa.JSON(), nullable=True),
        sa.Column("job_count", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("job_counts", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("finished_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_open", "runs", ["id"], sqlite_where=OPEN, postgresql_where=OPEN)
    op.create_index("ix_runs_name", "runs", ["name", "id"])
    op.create_index("ix_runs_schedule", "runs", ["schedule_id", "id"])
    op.create_table(
        "run_jobs",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_jobs_run_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_run_jobs_job_id")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_run_jobs")),
        sa.UniqueConstraint("job_id", name=op.f("uq_run_jobs_job_id")),
    )
    op.create_table(
        "schedules",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("overlap", sa.Text(), nullable=False),
        sa.Column("builds", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("next_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("archived_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["suite"], ["suites.name"], name=op.f("fk_schedules_suite")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
    )
    op.create_index(
        "ix_schedules_next", "schedules", ["next_at"], sqlite_where=DUE, postgresql_where=DUE
    )
    op.create_table(
        "schedule_dues",
        sa.Column("schedule_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_schedule_dues_schedule_id")
        ),
        sa.PrimaryKeyConstraint("schedule_id", "due_at", name=op.f("pk_schedule_dues")),
    )
    op.create_table(
        "rejudgements",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("new_test_key", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["test_key"], ["test_specs.key"], name=op.f("fk_rejudgements_test_key")
        ),
        sa.ForeignKeyConstraint(
            ["new_test_key"], ["test_specs.key"], name=op.f("fk_rejudgements_new_test_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejudgements")),
    )
    op.create_index("ix_rejudgements_test", "rejudgements", ["test_key", "id"])


def downgrade() -> None:
    """Drop them."""
    for table in ("rejudgements", "schedule_dues", "schedules", "run_jobs", "runs", "suites"):
        op.drop_table(table)
