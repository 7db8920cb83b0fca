"""All tables of the database as SQLAlchemy 2 declarative classes; rows never leave this package.

The migrations make the same schema; a test compares the two on both databases.
"""

from gonogo_storage.db.base import Base
from gonogo_storage.tables.access import (
    AccessFailureRow,
    AuditRow,
    IdempotencyRow,
    SessionRow,
    TokenRow,
)
from gonogo_storage.tables.answers import AnswerRow, CommentRow
from gonogo_storage.tables.bisections import BisectionRow, ProbeRow
from gonogo_storage.tables.devices import (
    CanaryRow,
    DeviceHealthRow,
    DevicePeriodRow,
    DeviceRow,
    GoldenRow,
    WorkerRow,
)
from gonogo_storage.tables.duties import LeaseRow, OutboxRow
from gonogo_storage.tables.findings import (
    AssessmentRow,
    FlagChangeRow,
    FlagRow,
    TrendRow,
    WaiverRow,
)
from gonogo_storage.tables.gauges import GaugeResultRow, GaugeRow
from gonogo_storage.tables.grids import SeedGridRow
from gonogo_storage.tables.hooks import CiRuleRow, CommitCheckRow, IncomingDeliveryRow
from gonogo_storage.tables.hosts import (
    HostKeyRow,
    HostRow,
    InvitationRow,
    MessageNumberRow,
    RefusedMessageRow,
)
from gonogo_storage.tables.numbers import (
    ArchivedTallyRow,
    ArtifactRow,
    DayRollupRow,
    EventRow,
    JobTallyRow,
    RolledRow,
    SeedLayoutRow,
    SeedResultRow,
    SeedSourceRow,
)
from gonogo_storage.tables.suites import (
    DueRow,
    RejudgementRow,
    RunJobRow,
    RunRow,
    ScheduleRow,
    SuiteRow,
)
from gonogo_storage.tables.webhooks import DeliveryRow, DeliveryTryRow, WebhookRow
from gonogo_storage.tables.work import (
    AttemptRow,
    BuildRow,
    ChunkRangeRow,
    ChunkRow,
    JobLabelRow,
    JobRow,
    TestSpecRow,
)

__all__ = [
    "AccessFailureRow",
    "AnswerRow",
    "ArchivedTallyRow",
    "ArtifactRow",
    "AssessmentRow",
    "AttemptRow",
    "AuditRow",
    "Base",
    "BisectionRow",
    "BuildRow",
    "CanaryRow",
    "ChunkRangeRow",
    "ChunkRow",
    "CiRuleRow",
    "CommentRow",
    "CommitCheckRow",
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
    "HostKeyRow",
    "HostRow",
    "IdempotencyRow",
    "IncomingDeliveryRow",
    "InvitationRow",
    "JobLabelRow",
    "JobRow",
    "JobTallyRow",
    "LeaseRow",
    "MessageNumberRow",
    "OutboxRow",
    "ProbeRow",
    "RefusedMessageRow",
    "RejudgementRow",
    "RolledRow",
    "RunJobRow",
    "RunRow",
    "ScheduleRow",
    "SeedGridRow",
    "SeedLayoutRow",
    "SeedResultRow",
    "SeedSourceRow",
    "SessionRow",
    "SuiteRow",
    "TestSpecRow",
    "TokenRow",
    "TrendRow",
    "WaiverRow",
    "WebhookRow",
    "WorkerRow",
]
