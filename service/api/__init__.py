"""The API under /api/v1: one router and its schemas per noun."""

from __future__ import annotations

from fastapi import APIRouter

PREFIX = "/api/v1"


def routers() -> list[APIRouter]:
    """Every router of the API, in the order of the documentation."""
    from service.api import (
        artifacts,
        audit,
        builds,
        devices,
        diagnosis,
        events,
        flags,
        jobs,
        results,
        subjects,
        tests,
        tokens,
        webhooks,
        workers,
    )

    nouns = (jobs, results, artifacts, events, diagnosis, tests, subjects, flags, builds, devices, workers, tokens, webhooks, audit)
    return [noun.router for noun in nouns]
