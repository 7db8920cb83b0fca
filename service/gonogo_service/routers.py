"""Every router of the API, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

from gonogo_service.bisections import api as bisections
from gonogo_service.builds import api as builds
from gonogo_service.ci import hooks_api as hooks
from gonogo_service.ci import rules_api as rules
from gonogo_service.compare import api as compare
from gonogo_service.devices import api as devices
from gonogo_service.flags import api as flags
from gonogo_service.gauges import api as gauges
from gonogo_service.hosts import api as hosts
from gonogo_service.hosts import door
from gonogo_service.jobs.api import artifacts, diagnosis, imports, jobs
from gonogo_service.kit import rooms
from gonogo_service.kit.resource import Resource
from gonogo_service.overview import api as news
from gonogo_service.people import api as tokens
from gonogo_service.people import audit_api as audit
from gonogo_service.results import api as results
from gonogo_service.schedules import api as schedules
from gonogo_service.suites import api as suites
from gonogo_service.suites import runs_api as runs
from gonogo_service.tests.api import rejudgements, tests, tolerances
from gonogo_service.waivers import api as waivers
from gonogo_service.webhooks import api as webhooks


def routers() -> list[APIRouter]:
    """Return every router of the API, in the order of the documentation.

    A noun that isn't named here comes last: the module `api` of each room is found by itself.
    """
    jobs_and_results = (jobs, imports, results, artifacts, diagnosis)
    tests_and_suites = (
        tests,
        compare,
        gauges,
        bisections,
        flags,
        waivers,
        suites,
        runs,
        schedules,
        rejudgements,
        tolerances,
    )
    fleet_and_ci = (
        builds,
        devices,
        door,
        hosts,
        tokens,
        webhooks,
        hooks.HOOKS,
        hooks.COMMIT_CHECKS,
        hooks.ANSWERS,
        rules,
        audit,
        audit.AUDIT,
        news,
    )
    nouns = (*jobs_and_results, *tests_and_suites, *fleet_and_ci)
    named = [*(noun.router for noun in nouns), devices.workers_router]
    rooms.modules("api")
    return [*named, *(noun.router for noun in Resource.registered if noun.router not in named)]
