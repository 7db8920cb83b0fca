"""Pages of sixty tests on twenty builds: their HTML stays small, and their reads stay few."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from shutil import copyfile

import pytest
from sqlalchemy import event, select

import stored_jobs
from api import Api, in_process
from benchmarks import harvest
from gonogo import urls
from gonogo.spec.test_spec import TestSpec
from gonogo_service.builds import store as builds
from gonogo_service.flags import evidence
from gonogo_service.flags import store as flags
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from stored_histories import world

pytestmark = pytest.mark.slow

TESTS, BUILDS, SEEDS = 60, 20, 4
MAX_HTML = 150_000
"""As in tests/browser/test_every_page.py, whose database is small."""
MAX_STATEMENTS = 26
"""Statements of a list of sixty tests: none is sent for each test."""


def spec(number: int) -> TestSpec:
    """The nightly test with another epsilon: a workload of its own."""
    return TestSpec.parse({**stored_jobs.NIGHTLY, "epsilon": 1e-6 * (1 + number)})


@pytest.fixture(scope="module")
def api(sqlite_template: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Sixty tests on twenty builds; a tenth of them hollow or red, all assessed and flagged."""
    file = tmp_path_factory.mktemp("sixty") / "gonogo.sqlite"
    copyfile(str(sqlite_template), file)
    url = f"sqlite:///{file}"
    with in_process(url) as running:
        now = utcnow()
        with running.context.session() as session:
            start = now - timedelta(days=BUILDS + 2)
            first = harvest.Place(spec(TESTS), "b0000", 0, start)
            sources = [
                harvest.Source(session, harvest.stored(session, kind, first, SEEDS))
                for kind in harvest.KINDS
            ]
            tests = [spec(number) for number in range(TESTS)]
            for sequence in range(1, BUILDS + 1):
                build = builds.add(
                    session,
                    name=f"b{sequence:04d}",
                    executor="ttnn",
                    branch=harvest.LINE,
                    sequence=sequence,
                    arithmetic="bf16" if 2 * sequence < BUILDS else "fp32",
                )
                build.created_at = start
                at = now - timedelta(days=BUILDS - sequence)
                fixed = 2 * sequence > BUILDS
                harvest.night(session, sources, tests, sequence, at=at, fixed=fixed)
        with running.context.session() as session:
            for job in session.scalars(select(JobRow).where(JobRow.build == f"b{BUILDS:04d}")):
                for finding in evidence.findings(session, job):
                    flags.upsert(session, finding, now=now)
        with world(url) as background:
            background.assess()
        yield running


@pytest.mark.parametrize(
    "url",
    [
        urls.catalogue() + "?limit=60",
        urls.catalogue() + "?limit=60&range=30d",
        urls.matrix({"branch": harvest.LINE, "builds": str(BUILDS)}),
        urls.OVERVIEW,
        urls.history(spec(3).key),
    ],
)
def test_a_page_of_sixty_tests_on_twenty_builds_is_small(api: Api, url: str) -> None:
    answer = api.client.get(url, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= MAX_HTML, len(answer.content)


def test_the_list_shows_all_sixty_with_their_strips_in_few_statements(api: Api) -> None:
    statements: list[str] = []
    listen = event.listens_for(api.context.engine, "before_cursor_execute")
    listen(lambda *given: statements.append(given[2]))
    shown = api.client.get(urls.catalogue() + ".json?limit=61").json()
    assert len(statements) <= MAX_STATEMENTS, len(statements)
    assert len(shown["items"]) == TESTS + 1
    strips = [line["recent"]["cells"] for line in shown["items"]]
    assert sorted({len(strip) for strip in strips}) == [1, BUILDS]
    changed = {cell["build"] for strip in strips for cell in strip if cell["event"]}
    assert changed == {f"b{BUILDS // 2:04d}"}, "the builds with the other arithmetic"
