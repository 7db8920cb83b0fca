"""Workloads: a workload is a test without its tolerance; its jobs share one history."""

from __future__ import annotations

from gonogo_service.kit.answers import Cursor, Limit, make_router, missing
from gonogo_service.kit.database.paging import Page
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import test_specs as stored
from gonogo_service.tests.test_specs import PastJob

router = make_router("tests")


@router.get("/workloads/{workload_key}/history", summary="List a workload's history")
def history(
    context: Ctx, _who: Reader, workload_key: str, limit: Limit = 200, cursor: Cursor = None
) -> Page[PastJob]:
    """List every finished job, whatever its tolerance, newest first."""
    with context.reading() as session:
        if not stored.workload(session, workload_key):
            raise missing("workload", workload_key)
        return stored.history(session, workload_key, limit=limit, cursor=cursor)
