"""Every table of the database, as SQLAlchemy 2 declarative classes; rows never leave `storage`.

migrations/versions holds the same schema as it grew; a test compares the two on both databases.
"""

from storage.tables.access import AuditRow, IdempotencyRow, SessionRow, TokenRow
from storage.tables.answers import AnswerRow, CommentRow
from storage.tables.base import Base
from storage.tables.bisections import BisectionRow, ProbeRow
from storage.tables.devices import CanaryRow, DeviceHealthRow, DevicePeriodRow, DeviceRow, GoldenRow, WorkerRow
from storage.tables.duties import LeaseRow, OutboxRow
from storage.tables.findings import AssessmentRow, FlagChangeRow, FlagRow, OverrideRow, TrendRow
from storage.tables.gauges import GaugeResultRow, GaugeRow
from storage.tables.grids import SeedGridRow
from storage.tables.hooks import CiRuleRow, CiSubjectRow, InboundRow
from storage.tables.numbers import ArtifactRow, DayRollupRow, EventRow, JobTallyRow, RolledRow, RollupRow, SeedResultRow
from storage.tables.suites import DueRow, RejudgementRow, RunJobRow, RunRow, ScheduleRow, SuiteRow
from storage.tables.webhooks import DeliveryRow, DeliveryTryRow, WebhookRow
from storage.tables.work import AttemptRow, BuildRow, ChunkRow, JobLabelRow, JobRow, TestSpecRow

__all__ = [
    "AnswerRow",
    "ArtifactRow",
    "AssessmentRow",
    "AttemptRow",
    "AuditRow",
    "Base",
    "BisectionRow",
    "BuildRow",
    "CanaryRow",
    "ChunkRow",
    "CiRuleRow",
    "CiSubjectRow",
    "CommentRow",
    "DayRollupRow",
    "DeliveryRow",
    "DeliveryTryRow",
    "DeviceHealthRow",
    "DevicePeriodRow",
    "DeviceRow",
    "DueRow",
    "EventRow",
    "FlagChangeRow",
    "FlagRow",
    "GaugeResultRow",
    "GaugeRow",
    "GoldenRow",
    "IdempotencyRow",
    "InboundRow",
    "JobLabelRow",
    "JobRow",
    "JobTallyRow",
    "LeaseRow",
    "OutboxRow",
    "OverrideRow",
    "ProbeRow",
    "RejudgementRow",
    "RolledRow",
    "RollupRow",
    "RunJobRow",
    "RunRow",
    "ScheduleRow",
    "SeedGridRow",
    "SeedResultRow",
    "SessionRow",
    "SuiteRow",
    "TestSpecRow",
    "TokenRow",
    "TrendRow",
    "WebhookRow",
    "WorkerRow",
]
