"""Findings from imported runs: red and green alone show a flaky test, on both databases."""

from __future__ import annotations

from gonogo.reports.reading import read
from gonogo.reports.rows import rows_of
from gonogo.spec.builds import Build
from gonogo.spec.selections import Selection
from gonogo_service.flags.api import FLAGS
from gonogo_service.jobs import imports
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.kit.database import engine as engines
from gonogo_service.results import selection_tests
from gonogo_service.tests import test_specs
from stored_histories import world

SUITE = Selection(suite="nightly")
SOURCE = {
    "format": "junit",
    "tool": None,
    "tests": 2,
    "numbers": False,
    "bytes": 1,
    "sha256": "",
    "started_at": None,
}


def test_red_and_green_of_one_build_are_flaky_and_no_command_is_offered(database_url: str) -> None:
    imported = set()
    with world(database_url) as here:
        with engines.session(here.engine) as session:
            for inner in ("<failure/>", "", "", "<failure/>", "", ""):
                cases = f'<testcase name="steady"/><testcase name="dx">{inner}</testcase>'
                report = read(f"<testsuite>{cases}</testsuite>".encode(), "junit")
                place = (Build("b1", "import", "main", 1), rows_of(report), SOURCE)
                job = imports.create(session, SUITE, *place, arch="any", board="any")
                imported.add(job.id)
        assert here.assess() == 6
        with engines.reading(here.engine) as session:
            (flag,) = FLAGS.page(session, test=SUITE.key).items
            first = jobs.get(session, min(imported))
            assert first is not None
            outcomes = selection_tests.census(session, first)
            (build,) = test_specs.builds_of(session, SUITE.key)
            listed = JOBS.page(session, kind="import", limit=20).items
    assert (flag.kind, flag.evidence.get("check")) == ("flaky", None)
    assert outcomes == {("not_judged", "passed"): 1, ("not_judged", "failed"): 1}
    assert (build.jobs, build.seeds, build.counts) == (6, 6, {"not_judged": 6})
    assert {job.id for job in listed} == imported
