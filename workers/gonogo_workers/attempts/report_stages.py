"""The table of a staged suite's iteration, as an artifact.

Storage joins the tables of all iterations and adds blocker and regressions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from gonogo.reports import forms
from gonogo.spec import stages
from gonogo_workers.attempts.evidence import Artifact
from gonogo_workers.messages.chunk import Work
from gonogo_workers.reports.rows import Report

log = logging.getLogger(__name__)

KIND = "stages"
"""The artifact's kind; gonogo_service.results.stages reads it."""


def artifact(work: Work, reports: Sequence[Report], suite: Mapping[str, Any]) -> Artifact | None:
    """Return the table of one iteration; None when no report belongs to a stage.

    `suite`: its table in the builds file, for the order.
    """
    tests = [
        {
            "stage": report.stage,
            "name": report.name,
            "outcome": report.outcome.value,
            "message": report.message,
            "duration_ms": report.duration_ms,
        }
        | {name: report.more[name] for name in ("requires", "blocked_by") if name in report.more}
        for report in reports
    ]
    table = stages.table(tests, suite)
    if not table.stages:
        return None
    content = table.to_json()
    if not forms.is_plain(content):  # the service would refuse the whole message
        log.warning("iteration %s: the table of its stages is too large", work[0])
        return None
    return {
        "kind": KIND,
        "seed": work[0],
        "repeat": work[1],
        "output": None,
        "content": content,
    }
