"""The news of a reader: what changed since the last visit."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from gonogo_service.kit.answers import make_router
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.strict import Moment
from gonogo_service.overview import news
from gonogo_service.overview.news import News
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import matrices, standings

MOST = 200
router = make_router("news")


@router.get("/news", summary="Show what changed since you were here")
def show(context: Ctx, who: Reader) -> News:
    """Show newly hollow, red and lost tests, fixed ones, new builds, what ends today, and yours.

    It is since you last sent `POST /news:seen`, or of the last day; the latest 200 of each topic.
    """
    now = utcnow()
    with context.reading() as session:
        current = standings.read(session, since=now - standings.WINDOW)
        builds = matrices.builds(session)
        return news.read(session, who, builds, current, standings.Memory(), now, MOST)


@router.post("/news:seen", status_code=204, summary="Say that you have seen the news")
def seen(
    context: Ctx,
    who: Reader,
    at: Annotated[
        Moment | None, Query(description="Until when: `until` of the answer; default: now")
    ] = None,
) -> None:
    """Empty the news, for you only. A moment in the future counts as now."""
    now = utcnow()
    with context.session() as session:
        news.see(session, who, min(at or now, now))
