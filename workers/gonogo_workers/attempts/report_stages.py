"""The table of a staged suite's iteration, as an artifact: storage makes one of all iterations,
with blocker and regressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gonogo.spec import stages
from gonogo_workers.attempts.evidence import Artifact
from gonogo_workers.messages.chunk import Work
from gonogo_workers.reports.rows import Report

KIND = "stages"
"""Of the artifact; gonogo_storage.seeds.stages reads it."""


def artifact(work: Work, reports: Sequence[Report], suite: Mapping[str, Any]) -> Artifact | None:
    """The table of one iteration; None when no report belongs to a stage. `suite`: its table in the
    builds file, for the order.
    """
    told = [
        {
            "stage": each.stage,
            "name": each.name,
            "outcome": each.outcome.value,
            "message": each.message,
            "duration_ms": each.duration_ms,
        }
        | {name: each.more[name] for name in ("requires", "blocked_by") if name in each.more}
        for each in reports
    ]
    table = stages.table(told, suite)
    if not table.stages:
        return None
    return {
        "kind": KIND,
        "seed": work[0],
        "repeat": work[1],
        "output": None,
        "content": table.to_json(),
    }
