"""The parts of the code whose promises matter most, and the tests near them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """Some modules, and the tests that have to notice a fault in them; the quick ones first."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


SUBJECTS = (
    Subject(
        "verdicts",
        (
            "gonogo/judging/comparison.py",
            "gonogo/judging/judging.py",
            "gonogo/judging/closeness.py",
        ),
        (
            "tests/unit/domain/judging/test_comparison.py",
            "tests/unit/domain/judging/test_judging.py",
        ),
    ),
    Subject(
        "flakiness",
        (
            "gonogo/flakiness/classification.py",
            "gonogo/flakiness/outcomes.py",
            "gonogo/flakiness/gating.py",
            "gonogo/flakiness/masking.py",
        ),
        ("tests/unit/domain/flakiness", "tests/unit/domain/ci"),
    ),
    Subject(
        "closing",
        ("gonogo_storage/jobs/closing.py",),
        (
            "tests/integration/storage/test_storage_jobs.py",
            "tests/integration/background/test_flow_states.py",
        ),
    ),
    Subject(
        "attempts",
        ("gonogo_storage/jobs/attempts.py",),
        (
            "tests/integration/background/test_flow_states.py",
            "tests/integration/storage/test_storage_jobs.py",
            "tests/integration/background/test_reaper.py",
        ),
    ),
    Subject(
        "chunks",
        ("gonogo_storage/jobs/chunks.py",),
        (
            "tests/integration/storage/test_storage_jobs.py",
            "tests/integration/background/test_flow_states.py",
            "tests/integration/background/test_suspect_seeds.py",
        ),
    ),
    Subject(
        "flags",
        ("gonogo_storage/flags/flags.py", "gonogo_storage/flags/flag_changes.py"),
        (
            "tests/integration/background/test_flag_life.py",
            "tests/integration/background/test_flags_many.py",
            "tests/integration/background/test_assessments.py",
        ),
    ),
    Subject(
        "roll-ups",
        ("gonogo_storage/rollups/rollups.py", "gonogo_storage/rollups/tallies.py"),
        ("tests/unit/storage/test_tallies.py", "tests/integration/api/test_rollups_service.py"),
    ),
    Subject(
        "leases",
        ("gonogo_storage/messages/leases.py",),
        ("tests/integration/storage/test_leases.py",),
    ),
    Subject(
        "auth",
        ("gonogo_storage/access/tokens.py", "service/gonogo_service/access/principals.py"),
        ("tests/integration/api/test_token_life.py", "tests/integration/api/test_auth_tokens.py"),
    ),
    Subject(
        "hooks",
        (
            "service/gonogo_service/hooks/signatures.py",
            "service/gonogo_service/hooks/processor.py",
        ),
        (
            "tests/integration/hooks/test_hooks_service.py",
            "tests/integration/hooks/test_hooks_rules.py",
            "tests/integration/hooks/test_hooks_payloads.py",
        ),
    ),
    Subject(
        "webhooks",
        (
            "service/gonogo_service/webhooks/signatures.py",
            "service/gonogo_service/webhooks/schedule.py",
            "service/gonogo_service/webhooks/addresses.py",
        ),
        ("tests/unit/service/test_webhook_rules.py", "tests/integration/hooks/test_webhooks.py"),
    ),
    Subject(
        "ingest",
        ("service/gonogo_service/background/ingest.py",),
        (
            "tests/integration/background/test_hostile_senders.py",
            "tests/integration/background/test_flow_states.py",
        ),
    ),
    Subject(
        "reaper",
        ("service/gonogo_service/background/reaper.py",),
        (
            "tests/integration/background/test_reaper.py",
            "tests/integration/background/test_flow_states.py",
        ),
    ),
    Subject(
        "locks",
        ("workers/gonogo_workers/devices/locks.py",),
        (
            "tests/unit/workers/test_device_locks.py",
            "tests/integration/workers/test_device_lock.py",
        ),
    ),
    Subject(
        "cancel",
        ("workers/gonogo_workers/messages/cancel.py",),
        (
            "tests/unit/workers/test_cancel_watcher.py",
            "tests/integration/workers/test_worker_flow.py",
        ),
    ),
    Subject(
        "envelope",
        ("workers/gonogo_workers/queue/envelope.py",),
        ("tests/unit/workers/test_workers_queue.py",),
    ),
)
