"""Sequential seeds with two copies of `gonogo background` and a real broker: workers are told to
stop or die on the way, and a job is decided once."""

from __future__ import annotations

from background_thread import host, running, short, submit, until
from gonogo_service.jobs import events
from gonogo_service.kit.database.engine import make_engine, reading
from job_flow import row
from patience import scaled
from running_service import until as eventually


def test_a_decided_job_tells_running_attempts_to_stop_and_ends_finished_though_a_worker_was_killed(
    migrated_sqlite_url: str, redis_url: str
) -> None:
    engine = make_engine(migrated_sqlite_url)
    # on a busy machine the test itself may be silent for a second
    settings = short(migrated_sqlite_url, redis_url).model_copy(
        update={"heartbeat_timeout_s": scaled(4)}
    )
    with host(engine, settings) as worker, running(settings), running(settings), worker.alive():
        request = {"seeds": {"policy": "sequential", "max": 200}}
        job_id = submit(engine, settings, 200, stop_on_finding=True, request=request)
        chunks = sorted((worker.take() for _ in range(2)), key=lambda chunk: chunk["work"])
        assert [chunk["work"] for chunk in chunks] == [[[0, 0], [1, 0]], [[2, 0], [3, 0]]]
        red = [row(seed, verdict="fail_by_tolerance") for seed in (1, 0)]
        for batch in (1, 1, 0):  # out of order, and one twice
            worker.send(chunks[0], [red[1 - batch]], batch=batch)
        worker.finish(chunks[0], batches=2)
        eventually(lambda: worker.beat(chunks[1]["attempt"])["canceled"])
        job = until(
            engine, job_id, lambda job: job.state == "finished"
        )  # the second attempt is never heard of again
    with reading(engine) as current:
        decided = [event for event in events.after(current, job_id, 0) if "reason" in event.data]
    engine.dispose()
    assert job.stop is not None
    assert (job.verdict, job.stop.decision, job.stop.seeds_saved, job.total, job.done) == (
        "fail_by_tolerance",
        "flaky",
        198,
        2,
        2,
    )
    assert len(decided) == 1
