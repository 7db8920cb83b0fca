"""The variants that tests have run as, read for a whole page at once, on SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Engine, update

import nightly_history
import stored_jobs
from gonogo_storage.catalogue import test_list
from gonogo_storage.db import engine as engines
from gonogo_storage.db.states import JobKind
from gonogo_storage.rollups import variants
from gonogo_storage.tables import JobRow

OTHER = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.25}}


def test_every_variant_once_and_none_that_was_only_gauged(engine: Engine) -> None:
    with engines.session(engine) as session:
        for sequence in (1, 2, 3):
            for line, board in (("main", "n150"), ("main", "n300"), ("release", "n150")):
                last = nightly_history.submit(
                    session, [0], build=f"b{sequence}", sequence=sequence, branch=line, board=board
                )
        other = nightly_history.submit(session, [0], build="b1", sequence=1, test=OTHER)
        gauge = nightly_history.submit(
            session, [0], build="b1", sequence=1, test=OTHER, branch="gauged"
        )
        session.execute(update(JobRow).where(JobRow.id == gauge.id).values(kind=JobKind.gauge))
        variants_by_test = variants.variants_of_all(
            session, [last.test_key, other.test_key, "v1-nobody"]
        )
        assert {
            key: [(variant.branch, variant.board) for variant in test_variants]
            for key, test_variants in variants_by_test.items()
        } == {
            last.test_key: [("main", "n150"), ("main", "n300"), ("release", "n150")],
            other.test_key: [("main", "n150")],
        }
        assert variants.variants_of(session, other.test_key) == variants_by_test[other.test_key]
        listed = {test.key: test for test in test_list.list_(session).items}
        assert {key: (test.job, test.build, test.variants) for key, test in listed.items()} == {
            last.test_key: (last.id, "b3", variants_by_test[last.test_key]),
            other.test_key: (other.id, "b1", variants_by_test[other.test_key]),
        }
        # a job that waits has no verdict; the last judged one counts
        judged = listed[other.test_key]
        assert judged.verdict is judged.judged_verdict is None
        stored_jobs.report(session, other.id, [stored_jobs.row(0, wrong=True)])
        stored_jobs.finish(session, other.id)
        waits = nightly_history.submit(session, [0], build="b2", sequence=2, test=OTHER)
        judged = {test.key: test for test in test_list.list_(session).items}[other.test_key]
        assert (judged.job, judged.verdict) == (waits.id, None)
        assert (judged.judged_job, judged.judged_build) == (other.id, "b1")
        assert judged.judged_verdict == "pass_by_tolerance"
