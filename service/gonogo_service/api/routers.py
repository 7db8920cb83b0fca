"""Every router of the API, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from gonogo_service.api import rehearsals
from gonogo_service.api.admin import audit, tokens
from gonogo_service.api.ci import compare, github_answers, hooks, rules, webhooks
from gonogo_service.api.flags import flags, waivers
from gonogo_service.api.fleet import builds, devices, hosts, invitations, workers
from gonogo_service.api.jobs import artifacts, diagnosis, events, imports, jobs, results
from gonogo_service.api.suites import runs, schedules, suites
from gonogo_service.api.tests import (
    attribution,
    bisections,
    changes,
    gauges,
    rejudgements,
    tests,
    workloads,
)


def routers() -> list[APIRouter]:
    """Return every router of the API, in the order of the documentation."""
    jobs_and_results = (jobs, imports, results, artifacts, events, diagnosis)
    tests_and_suites = (
        tests,
        attribution,
        changes,
        compare,
        workloads,
        gauges,
        bisections,
        flags,
        waivers,
        suites,
        runs,
        schedules,
        rejudgements,
    )
    fleet_and_ci = (
        builds,
        devices,
        hosts,
        invitations,
        workers,
        tokens,
        webhooks,
        hooks,
        rules,
        github_answers,
        audit,
    )
    nouns = (*jobs_and_results, *tests_and_suites, *fleet_and_ci, rehearsals)
    return [noun.router for noun in nouns]
