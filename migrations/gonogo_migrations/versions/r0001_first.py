"""The first schema: every table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
UNMADE = sa.text("chunks_cut < until")
DUE = sa.text("due_at IS NOT NULL")
TABLES = (
    "access_failures",
    "audit",
    "builds",
    "ci_rules",
    "day_rollups",
    "device_periods",
    "devices",
    "github_comments",
    "goldens",
    "host_invitations",
    "hosts",
    "idempotency_keys",
    "incoming_deliveries",
    "job_tallies",
    "leases",
    "message_numbers",
    "outbox",
    "refused_messages",
    "rolled",
    "runs",
    "suites",
    "test_specs",
    "tokens",
    "webhooks",
    "workers",
    "assessments",
    "bisections",
    "canaries",
    "commit_checks",
    "device_health",
    "flags",
    "host_keys",
    "jobs",
    "rejudgements",
    "schedules",
    "sessions",
    "trends",
    "waivers",
    "webhook_deliveries",
    "archived_tallies",
    "artifacts",
    "bisection_probes",
    "chunk_ranges",
    "chunks",
    "events",
    "flag_changes",
    "gauges",
    "github_answers",
    "job_labels",
    "run_jobs",
    "schedule_dues",
    "seed_grids",
    "seed_layouts",
    "seed_results",
    "seed_sources",
    "webhook_tries",
    "attempts",
    "gauge_results",
)
"""In the order of their creation: a table comes after those that its foreign keys name."""


def upgrade() -> None:
    """Create every table; on PostgreSQL also the partition for results outside every month."""
    op.create_table(
        "access_failures",
        sa.Column("hour", TIME, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("minute", TIME, nullable=False),
        sa.Column("minute_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "hour", "kind", "client", "prefix", name=op.f("pk_access_failures")
        ),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_table(
        "builds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("commit", sa.Text(), nullable=True),
        sa.Column("arithmetic", sa.Text(), nullable=True),
        sa.Column("outputs", sa.JSON(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_builds")),
    )
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
        "day_rollups",
        sa.Column("key", sa.Uuid(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("build_sequence", sa.BigInteger(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("seeds", sa.BigInteger(), nullable=False),
        sa.Column("empty", sa.BigInteger(), nullable=False),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("explanations", sa.JSON(), nullable=False),
        sa.Column("outcomes", sa.JSON(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("sketches", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("key", "shadow", name=op.f("pk_day_rollups")),
    )
    op.create_index("ix_day_rollups_day", "day_rollups", ["day", "output"])
    op.create_index("ix_day_rollups_lately", "day_rollups", ["test_key", "output", "day"])
    op.create_index("ix_day_rollups_test", "day_rollups", ["test_key", "build", "output"])
    op.create_table(
        "device_periods",
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("size_s", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start", TIME, nullable=False),
        sa.Column("seeds", sa.BigInteger(), nullable=False),
        sa.Column("busy_us", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("golden", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("differs", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("telemetry", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("device", "size_s", "start", name=op.f("pk_device_periods")),
    )
    op.create_index("ix_device_periods_start", "device_periods", ["size_s", "start"])
    op.create_table(
        "devices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=True),
        sa.Column("pci", sa.Text(), nullable=True),
        sa.Column("firmware", sa.JSON(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("queues", sa.JSON(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("online", sa.Boolean(), nullable=False),
        sa.Column("health", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("telemetry", sa.JSON(), nullable=True),
        sa.Column("digests", sa.JSON(), nullable=True),
        sa.Column("first_heard_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("health_at", TIME, nullable=True),
        sa.Column("announced_health", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
        sa.UniqueConstraint("identity", name=op.f("uq_devices_identity")),
    )
    op.create_index(op.f("ix_devices_host"), "devices", ["host"])
    op.create_table(
        "github_comments",
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("pull_request", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("repository", "pull_request", name=op.f("pk_github_comments")),
    )
    op.create_table(
        "goldens",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("first_device", sa.Text(), nullable=False),
        sa.Column("second_device", sa.Text(), nullable=True),
        sa.Column("confirmed_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("host", "executor", "build", "arch", name=op.f("pk_goldens")),
    )
    op.create_table(
        "host_invitations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queues", sa.JSON(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host_invitations")),
    )
    op.create_index(op.f("ix_host_invitations_expires_at"), "host_invitations", ["expires_at"])
    op.create_table(
        "hosts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queues", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("enrolled_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("heard_at", TIME, nullable=True),
        sa.Column("clock_skew_s", sa.Double(), nullable=True),
        sa.Column("clock_at", TIME, nullable=True),
        sa.Column("flagged_at", TIME, nullable=True),
        sa.Column("flag_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hosts")),
        sa.UniqueConstraint("name", name=op.f("uq_hosts_name")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("response", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_expires_at"), "idempotency_keys", ["expires_at"])
    op.create_table(
        "incoming_deliveries",
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incoming_deliveries")),
        sa.UniqueConstraint(
            "source", "delivery", name=op.f("uq_incoming_deliveries_source_delivery")
        ),
    )
    op.create_index(
        "ix_incoming_deliveries_due",
        "incoming_deliveries",
        ["due_at"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_index(
        "ix_incoming_deliveries_repository", "incoming_deliveries", ["repository", "id"]
    )
    op.create_table(
        "job_tallies",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("seeds", sa.BigInteger(), nullable=False),
        sa.Column("empty", sa.BigInteger(), nullable=False),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("explanations", sa.JSON(), nullable=False),
        sa.Column("outcomes", sa.JSON(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("sketches", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "output", "shadow", name=op.f("pk_job_tallies")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "message_numbers",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("subject", "task", name=op.f("pk_message_numbers")),
    )
    op.create_index(op.f("ix_message_numbers_at"), "message_numbers", ["at"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("dedupe", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("done_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sa.UniqueConstraint("dedupe", name=op.f("uq_outbox_dedupe")),
    )
    op.create_index(op.f("ix_outbox_done_at"), "outbox", ["done_at"])
    op.create_index("ix_outbox_due", "outbox", ["due_at"], sqlite_where=DUE, postgresql_where=DUE)
    op.create_table(
        "refused_messages",
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("last_at", TIME, nullable=False),
        sa.Column("audited_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("sender", "reason", name=op.f("pk_refused_messages")),
    )
    op.create_table(
        "rolled",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("upto", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "shadow", name=op.f("pk_rolled")),
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
        sa.Column("red", sa.Integer(), nullable=False),
        sa.Column("hollow", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("finished_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_name", "runs", ["name", "id"])
    op.create_index(
        "ix_runs_open",
        "runs",
        ["id"],
        sqlite_where=sa.text("state IN ('running', 'cancelling')"),
        postgresql_where=sa.text("state IN ('running', 'cancelling')"),
    )
    op.create_index("ix_runs_schedule", "runs", ["schedule_id", "id"])
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
        "test_specs",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("canonical", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_test_specs")),
    )
    op.create_index(op.f("ix_test_specs_workload_key"), "test_specs", ["workload_key"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("builds", sa.JSON(), nullable=False),
        sa.Column("branches", sa.JSON(), nullable=False),
        sa.Column("repositories", sa.JSON(), nullable=False),
        sa.Column("suites", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("last_used_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("old_secret", sa.Text(), nullable=True),
        sa.Column("old_until", TIME, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("queues", sa.JSON(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("first_heard_at", TIME, nullable=False),
        sa.Column("heard_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_heard_at"), "workers", ["heard_at"])
    op.create_table(
        "assessments",
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
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
        sa.PrimaryKeyConstraint("test_key", "branch", "arch", "board", name=op.f("pk_assessments")),
    )
    op.create_index("ix_assessments_stability", "assessments", ["stability", "test_key"])
    op.create_index("ix_assessments_workload", "assessments", ["workload_key"])
    op.create_table(
        "bisections",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("expect", sa.Text(), nullable=False),
        sa.Column("several", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("builds", sa.JSON(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("seed_start", sa.BigInteger(), nullable=False),
        sa.Column("max_runs", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tracks", sa.JSON(), nullable=False),
        sa.Column("moves", sa.JSON(), nullable=True),
        sa.Column("findings", sa.JSON(), nullable=False),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("words", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("finished_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["test_key"], ["test_specs.key"], name=op.f("fk_bisections_test_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisections")),
    )
    op.create_index(
        "ix_bisections_open",
        "bisections",
        ["id"],
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index("ix_bisections_test", "bisections", ["test_key", "id"])
    op.create_table(
        "canaries",
        sa.Column("device_id", sa.Uuid(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("accused", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name=op.f("fk_canaries_device_id")),
        sa.PrimaryKeyConstraint("device_id", "executor", "build", "arch", name=op.f("pk_canaries")),
    )
    op.create_index("ix_canaries_build", "canaries", ["executor", "build", "arch"])
    op.create_table(
        "commit_checks",
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
            ["delivery_id"], ["incoming_deliveries.id"], name=op.f("fk_commit_checks_delivery_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commit_checks")),
        sa.UniqueConstraint(
            "delivery_id", "rule", "suite", name=op.f("uq_commit_checks_delivery_id_rule_suite")
        ),
    )
    op.create_index("ix_commit_checks_base_run", "commit_checks", ["base_run_id"])
    op.create_index("ix_commit_checks_head", "commit_checks", ["repository", "head_sha"])
    op.create_index(
        "ix_commit_checks_pull_request", "commit_checks", ["repository", "pull_request", "id"]
    )
    op.create_index("ix_commit_checks_run", "commit_checks", ["run_id"])
    op.create_table(
        "device_health",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("device_id", sa.Uuid(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_device_health_device_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_health")),
    )
    op.create_index("ix_device_health_device", "device_health", ["device_id", "id"])
    op.create_table(
        "flags",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("first_job", sa.Uuid(), nullable=False),
        sa.Column("last_job", sa.Uuid(), nullable=False),
        sa.Column("jobs", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("quiet_after", sa.Uuid(), nullable=True),
        sa.ForeignKeyConstraint(["test_key"], ["test_specs.key"], name=op.f("fk_flags_test_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_flags")),
        sa.UniqueConstraint(
            "kind",
            "test_key",
            "branch",
            "arch",
            "board",
            name=op.f("uq_flags_kind_test_key_branch_arch_board"),
        ),
    )
    op.create_index("ix_flags_build", "flags", ["build", "state", "kind", "id"])
    op.create_index("ix_flags_owner", "flags", ["owner", "state", "kind", "id"])
    op.create_index("ix_flags_state", "flags", ["state", "kind", "id"])
    op.create_table(
        "host_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host_id", sa.Uuid(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("retired_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_host_keys_host_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host_keys")),
    )
    op.create_index(op.f("ix_host_keys_host_id"), "host_keys", ["host_id"])
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="seeds", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("waiting_reason", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("build_sequence", sa.BigInteger(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("context", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("commit", sa.JSON(), nullable=True),
        sa.Column("resubmit_of", sa.Uuid(), nullable=True),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("sequential", sa.JSON(), nullable=True),
        sa.Column("stop", sa.JSON(), nullable=True),
        sa.Column("suspects", sa.JSON(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("open_chunks", sa.Integer(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("outcomes", sa.JSON(), nullable=True),
        sa.Column("red", sa.Integer(), nullable=False),
        sa.Column("hollow", sa.Integer(), nullable=False),
        sa.Column("slots", sa.JSON(), nullable=True),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("diagnosis", sa.JSON(), nullable=True),
        sa.Column("judge", sa.Text(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("deadline_at", TIME, nullable=False),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("cancel_at", TIME, nullable=True),
        sa.Column("finished_at", TIME, nullable=True),
        sa.Column("artifacts_removed_at", TIME, nullable=True),
        sa.Column("seeds_removed_at", TIME, nullable=True),
        sa.Column("rollups_removed_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["test_key"], ["test_specs.key"], name=op.f("fk_jobs_test_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_build", "jobs", ["build", "id"])
    op.create_index("ix_jobs_state", "jobs", ["state", "id"])
    op.create_index("ix_jobs_test", "jobs", ["test_key", "id"])
    op.create_index("ix_jobs_variant", "jobs", ["test_key", "branch", "arch", "board", "id"])
    op.create_index(
        "ix_jobs_newest", "jobs", ["test_key", "branch", "arch", "board", "build_sequence", "id"]
    )
    op.create_index("ix_jobs_workload", "jobs", ["workload_key", "id"])
    op.create_table(
        "rejudgements",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("new_test_key", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["new_test_key"], ["test_specs.key"], name=op.f("fk_rejudgements_new_test_key")
        ),
        sa.ForeignKeyConstraint(
            ["test_key"], ["test_specs.key"], name=op.f("fk_rejudgements_test_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejudgements")),
    )
    op.create_index("ix_rejudgements_test", "rejudgements", ["test_key", "id"])
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
        "ix_schedules_next",
        "schedules",
        ["next_at"],
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("token_id", sa.Uuid(), nullable=False),
        sa.Column("csrf", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name=op.f("fk_sessions_token_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_expires_at"), "sessions", ["expires_at"])
    op.create_index(op.f("ix_sessions_token_id"), "sessions", ["token_id"])
    op.create_table(
        "trends",
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("over", sa.Text(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("made_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["test_key"], ["test_specs.key"], name=op.f("fk_trends_test_key")),
        sa.PrimaryKeyConstraint(
            "test_key", "branch", "arch", "board", "over", name=op.f("pk_trends")
        ),
    )
    op.create_table(
        "waivers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=True),
        sa.Column("names", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("builds", sa.JSON(), nullable=False),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["test_key"], ["test_specs.key"], name=op.f("fk_waivers_test_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_waivers")),
    )
    op.create_index("ix_waivers_ends", "waivers", ["ended_at", "expires_at"])
    op.create_index("ix_waivers_test", "waivers", ["test_key", "id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("webhook_id", sa.Uuid(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_deliveries_webhook_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        sa.UniqueConstraint(
            "webhook_id", "event", name=op.f("uq_webhook_deliveries_webhook_id_event")
        ),
    )
    op.create_index(
        "ix_webhook_deliveries_due",
        "webhook_deliveries",
        ["due_at"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_index("ix_webhook_deliveries_webhook", "webhook_deliveries", ["webhook_id", "id"])
    op.create_table(
        "archived_tallies",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("seeds", sa.BigInteger(), nullable=False),
        sa.Column("empty", sa.BigInteger(), nullable=False),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("explanations", sa.JSON(), nullable=False),
        sa.Column("outcomes", sa.JSON(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("sketches", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_archived_tallies_job_id")),
        sa.PrimaryKeyConstraint(
            "job_id", "day", "device", "output", name=op.f("pk_archived_tallies")
        ),
    )
    op.create_table(
        "artifacts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint(
            "job_id",
            "kind",
            "seed",
            "repeat",
            "output",
            name=op.f("uq_artifacts_job_id_kind_seed_repeat_output"),
        ),
    )
    op.create_table(
        "bisection_probes",
        sa.Column("bisection_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("red", sa.Boolean(), nullable=True),
        sa.Column("wrong", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisections.id"], name=op.f("fk_bisection_probes_bisection_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_bisection_probes_job_id")),
        sa.PrimaryKeyConstraint("bisection_id", "number", name=op.f("pk_bisection_probes")),
        sa.UniqueConstraint("job_id", name=op.f("uq_bisection_probes_job_id")),
    )
    op.create_table(
        "chunk_ranges",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("first", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("pairs", sa.Integer(), nullable=False),
        sa.Column("pair_s", sa.Double(), nullable=False),
        sa.Column("growth", sa.Integer(), nullable=True),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("until", sa.Integer(), nullable=False),
        sa.Column("chunks_cut", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("released", sa.Integer(), nullable=False),
        sa.Column("released_pairs", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_chunk_ranges_job_id")),
        sa.PrimaryKeyConstraint("job_id", "first", name=op.f("pk_chunk_ranges")),
    )
    op.create_index(
        "ix_chunk_ranges_open",
        "chunk_ranges",
        ["queue", "job_id"],
        sqlite_where=UNMADE,
        postgresql_where=UNMADE,
    )
    op.create_table(
        "chunks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("work", sa.JSON(), nullable=False),
        sa.Column("estimate_s", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("returns", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_chunks_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunks")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_chunks_job_id_number")),
    )
    op.create_index("ix_chunks_state", "chunks", ["state", "queue", "job_id"])
    op.create_table(
        "events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_events")),
    )
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
    op.create_table(
        "gauges",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("test_key", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
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
        "github_answers",
        sa.Column("commit_check_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("told", sa.JSON(), nullable=False),
        sa.Column("check_id", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["commit_check_id"],
            ["commit_checks.id"],
            name=op.f("fk_github_answers_commit_check_id"),
        ),
        sa.PrimaryKeyConstraint("commit_check_id", name=op.f("pk_github_answers")),
    )
    op.create_index(
        "ix_github_answers_due",
        "github_answers",
        ["due_at"],
        sqlite_where=DUE,
        postgresql_where=DUE,
    )
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id")),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_job_labels")),
    )
    op.create_index("ix_job_labels_value", "job_labels", ["name", "value", "job_id"])
    op.create_table(
        "run_jobs",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_run_jobs_job_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_jobs_run_id")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_run_jobs")),
        sa.UniqueConstraint("job_id", name=op.f("uq_run_jobs_job_id")),
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
        "seed_grids",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("letters", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_seed_grids_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_seed_grids")),
    )
    op.create_table(
        "seed_layouts",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_seed_layouts")),
    )
    slots = range(4)
    op.create_table(
        "seed_results",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("repeat", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("arrival", sa.Integer(), nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.SmallInteger(), nullable=False),
        sa.Column("explanation", sa.SmallInteger(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        *(sa.Column(f"rank_{slot}", sa.SmallInteger(), nullable=True) for slot in slots),
        *(sa.Column(f"axis_{slot}", sa.Double(), nullable=True) for slot in slots),
        sa.Column("layout", sa.BigInteger(), nullable=True),
        sa.Column("numbers", sa.LargeBinary(), nullable=True),
        sa.Column("rest", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_seed_results_job_id")),
        sa.PrimaryKeyConstraint("job_id", "seed", "repeat", name=op.f("pk_seed_results")),
        postgresql_partition_by="RANGE (job_id)",
    )
    op.create_index("ix_seed_results_arrival", "seed_results", ["job_id", "arrival"])
    for slot in slots:
        op.create_index(
            f"ix_seed_results_slot_{slot}",
            "seed_results",
            ["job_id", f"rank_{slot}", f"axis_{slot}"],
            sqlite_where=sa.text(f"rank_{slot} IS NOT NULL"),
            postgresql_where=sa.text(f"rank_{slot} IS NOT NULL"),
        )
    op.create_table(
        "seed_sources",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("host_run", sa.Text(), nullable=True),
        sa.Column("arithmetic", sa.Text(), nullable=True),
        sa.Column("judge", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_seed_sources_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_seed_sources")),
    )
    op.create_table(
        "webhook_tries",
        sa.Column("delivery_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"],
            ["webhook_deliveries.id"],
            name=op.f("fk_webhook_tries_delivery_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_webhook_tries")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("chunk_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("work", sa.JSON(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=True),
        sa.Column("host_id", sa.Uuid(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("host_run", sa.Text(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("log_tail", sa.Text(), nullable=True),
        sa.Column("telemetry", sa.JSON(), nullable=True),
        sa.Column("batches", sa.JSON(), nullable=False),
        sa.Column("expected", sa.JSON(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("heard_at", TIME, nullable=True),
        sa.Column("finished_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("fk_attempts_chunk_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    op.create_index(op.f("ix_attempts_chunk_id"), "attempts", ["chunk_id"])
    op.create_index("ix_attempts_device", "attempts", ["device", "id"])
    op.create_index(op.f("ix_attempts_job_id"), "attempts", ["job_id"])
    op.create_index("ix_attempts_state", "attempts", ["state", "queue"])
    op.create_table(
        "gauge_results",
        sa.Column("gauge_id", sa.Uuid(), nullable=False),
        sa.Column("seed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.Double(), nullable=True),
        sa.Column("row", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["gauge_id"], ["gauges.id"], name=op.f("fk_gauge_results_gauge_id")
        ),
        sa.PrimaryKeyConstraint("gauge_id", "seed", "part", name=op.f("pk_gauge_results")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE TABLE seed_results_default PARTITION OF seed_results DEFAULT")


def downgrade() -> None:
    """Drop every table, the last one first."""
    for table in reversed(TABLES):
        op.drop_table(table)
