"""The API under /api/v1: one router and its schemas per noun."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter

PREFIX = "/api/v1"


def routers() -> list[APIRouter]:
    """Every router of the API, in the order of the documentation."""
    from gonogo_service.api import (
        artifacts,
        attribution,
        audit,
        bisections,
        builds,
        changes,
        compare,
        devices,
        diagnosis,
        events,
        flags,
        gauges,
        github_answers,
        hooks,
        imports,
        jobs,
        overrides,
        rejudgements,
        results,
        rules,
        runs,
        schedules,
        subjects,
        suites,
        tests,
        tokens,
        webhooks,
        workers,
    )

    of_jobs = (jobs, imports, results, artifacts, events, diagnosis)
    of_tests = (
        tests,
        attribution,
        changes,
        compare,
        subjects,
        gauges,
        bisections,
        flags,
        overrides,
        suites,
        runs,
        schedules,
        rejudgements,
    )
    of_places = (builds, devices, workers, tokens, webhooks, hooks, rules, github_answers, audit)
    return [noun.router for noun in (*of_jobs, *of_tests, *of_places)]
