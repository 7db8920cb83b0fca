"""Every table of the database, as SQLAlchemy 2 declarative classes; rows never leave `storage`.

migrations/versions holds the same schema as it grew; a test compares the two on both databases.
"""

from storage.tables.access import AuditRow, IdempotencyRow, SessionRow, TokenRow
from storage.tables.base import Base
from storage.tables.devices import CanaryRow, DeviceHealthRow, DeviceRow, GoldenRow, WorkerRow
from storage.tables.duties import LeaseRow, OutboxRow
from storage.tables.findings import FlagRow
from storage.tables.numbers import ArtifactRow, EventRow, RollupRow, SeedResultRow
from storage.tables.webhooks import DeliveryRow, DeliveryTryRow, WebhookRow
from storage.tables.work import AttemptRow, BuildRow, ChunkRow, JobLabelRow, JobRow, TestSpecRow

__all__ = [
    "ArtifactRow",
    "AttemptRow",
    "AuditRow",
    "Base",
    "BuildRow",
    "CanaryRow",
    "ChunkRow",
    "DeliveryRow",
    "DeliveryTryRow",
    "DeviceHealthRow",
    "DeviceRow",
    "EventRow",
    "FlagRow",
    "GoldenRow",
    "IdempotencyRow",
    "JobLabelRow",
    "JobRow",
    "LeaseRow",
    "OutboxRow",
    "RollupRow",
    "SeedResultRow",
    "SessionRow",
    "TestSpecRow",
    "TokenRow",
    "WebhookRow",
    "WorkerRow",
]
