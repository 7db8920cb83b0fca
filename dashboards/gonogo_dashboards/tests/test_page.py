"""Read model of a test's page: one test on one variant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import ranges, words
from gonogo_dashboards.kit.list_rows import details_of, noun_of, shape_of, tolerance_of
from gonogo_dashboards.tests.test_charts import charts
from gonogo_dashboards.tests.test_lines import choice
from gonogo_dashboards.tests.test_parts import VariantPage
from gonogo_dashboards.tests.waivers import waivers_of_test
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import assessments
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import PLACE

CHOICES = (*PLACE, "build", "output", "metric", "over", ranges.PARAMETER)


def one(
    session: Session, key: str, query: Mapping[str, str], now: datetime
) -> dict[str, Any] | None:
    """Return the page of a test; None where there is no such test.

    It shows the variant that the query names, where it exists, else the one that ran last. Where no
    job of the test has ended, `variant` is None, and what needs a run is missing.
    """
    test = session.get(TestSpecRow, key)
    if test is None:
        return None
    chosen = {name: value for name in CHOICES if (value := query.get(name, ""))}
    named = {name: chosen[name] for name in PLACE if name in chosen}.items()
    variants = assessments.variants(session, key)
    matches = [one for one in variants if one.place.items() >= named]
    variant = next(iter(matches or variants), None)
    about: dict[str, Any] = {
        "key": key,
        "workload_key": test.workload_key,
        "kernel": test.kernel,
        "shape": shape_of(test.test),
        "tolerance": tolerance_of(test.test),
        "details": details_of(test.test, entry_names.latest(session, [key]).get(key)),
        "noun": noun_of(test.test),
        "variants": tuple(
            choice(words.variant_of(one), urls.history(key, one.place), one == variant)
            for one in variants
        ),
        "waivers": waivers_of_test(session, key, now),
        "jobs_url": urls.jobs({"test": key}),
        "at": timestamp(now),
    }
    if variant is None:
        period = ranges.of({}, now, lambda _: urls.history(key))
        nothing = {"variant": None, "badges": (), "range": period}
        return {**about, **nothing, "json_url": urls.history(key, as_json=True)}
    page = VariantPage(session, variant, chosen, test.test, now)
    return {**about, **page.grade(), **page.builds(), **charts(page), **page.actions()}
