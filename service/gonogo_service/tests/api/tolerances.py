"""The slack of tests' tolerances over HTTP, and the patches that make them the advised ones."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.cli.kit.noun import Noun
from gonogo_service.gauges import store as gauges
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.resource import Resource
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.suites import patches
from gonogo_service.suites.patches import Patches
from gonogo_service.tests import tolerances
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import WINDOW
from gonogo_service.tests.tolerances import ToleranceLine

NOUN = Noun(
    "tolerances",
    {},
    "a tolerance",
    key="key",
    filters={
        "kernel": "Only those of tests of this kernel.",
        "suite": "Only those of the newest run of this suite.",
        "search": "Only those of tests with these words in kernel, shape, tolerance or key.",
    },
)


class _Tolerances(Resource[Any]):
    """The list is no table: it is sorted by what several tables say."""

    order = "the loosest first"

    def page(
        self, session: Session, *, limit: int = 50, cursor: str | None = None, **filters: Any
    ) -> Page[ToleranceLine]:
        """Return a page of the newest tests of the last 30 days, the largest slack first."""
        gauged, since = gauges.slacks(session), utcnow() - WINDOW
        return tolerances.page(session, gauged, since=since, limit=limit, cursor=cursor, **filters)


TOLERANCES = _Tolerances(NOUN, TestSpecRow, answer=ToleranceLine, has_one=False)
router = TOLERANCES.router


class PatchIn(Strict):
    """The tests whose tolerance is to become the advised one."""

    tests: list[str] = Field(min_length=1, max_length=urls.MAX_LENGTH, description="Their keys")


@router.post("/tolerances:patch", summary="Make patches of suite files")
def patch(context: Ctx, _who: Reader, body: PatchIn) -> Patches:
    """Return unified diffs of the files of the suites that ran these tests last, at most 20.

    Nothing is changed. The tolerances become those that the tests' last gauges advise, wider ones
    too. A file keeps all else, also its comments, but for those within a tolerance. `gonogo suites
    push` has to have stored its text. `left_out` says why the tolerance of a test stays.
    """
    with context.reading() as session:
        return patches.of_tests(session, context.settings, body.tests)
