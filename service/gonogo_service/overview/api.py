"""The news of a reader: what changed since the last visit."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Query

from gonogo_service.kit.answers import make_router
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.strict import Moment
from gonogo_service.overview import news
from gonogo_service.overview.news import Known, News
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import matrices, standings

MOST = 200
router = make_router("news")


@router.get("/news", summary="Show what changed since you were here")
def show(context: Ctx, who: Reader) -> News:
    """Show what changed on the main branch, what ends within a day, and your flags.

    It is since you last sent `POST /news:seen`, at most 30 days, or of the last day; the latest 200
    of each topic.
    """
    now = utcnow()
    with context.reading() as session:
        current = standings.read(session, since=now - standings.WINDOW)
        known = Known(matrices.builds(session), current, partial(standings.as_of, session))
        return news.read(session, who, known, now, MOST)


@router.post("/news:seen", status_code=204, summary="Say that you have seen the news")
def seen(
    context: Ctx,
    who: Reader,
    at: Annotated[Moment, Query(description="Until when: `until` of the answer")],
) -> None:
    """Empty the news, for you only; those of the last ten seconds stay."""
    with context.session() as session:
        news.mark_seen(session, who, at, utcnow())
