"""Large answers are compressed; event streams and built files are sent as they are."""

from __future__ import annotations

import pytest

import stored_jobs
from api import Api, on_port
from gonogo_dashboards.kit import assets

GZIP = {"Accept-Encoding": "gzip, br"}


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/jobs", "text/html"),
        ("/jobs.json", "application/json"),
        ("/api/v1/jobs/{job}/results", "application/json"),
        ("/api/v1/jobs/{job}/results?format=ndjson", "application/x-ndjson"),
    ],
)
def test_a_large_answer_is_compressed_for_those_who_accept_it(
    api: Api, path: str, media_type: str
) -> None:
    with api.context.session() as session:
        job = [stored_jobs.finished(session) for _ in range(4)].pop()
    bodies = []
    for encoding in ("gzip", "identity"):
        answer = api.client.get(
            path.format(job=job.id), headers={"Accept": media_type, "Accept-Encoding": encoding}
        )
        assert answer.headers.get("content-encoding", "identity") == encoding
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-type"].startswith(media_type)
        assert "content-security-policy" in answer.headers
        bodies.append(answer.content)
    if "/api/" in path:  # the others have the time of the request
        assert bodies[0] == bodies[1]


def test_a_small_answer_and_a_built_file_are_sent_as_they_are(api: Api) -> None:
    assert "content-encoding" not in api.client.get("/healthz", headers=GZIP).headers
    entry = assets.entry("main")
    answer = api.client.get(entry.script, headers=GZIP)
    packed = assets.FOLDER / (entry.script.rpartition("/")[2] + ".br")
    assert answer.headers["content-encoding"] == "br"
    assert answer.headers["content-length"] == str(packed.stat().st_size)


def test_an_event_arrives_before_the_stream_ends(migrated_sqlite_url: str) -> None:
    with on_port(migrated_sqlite_url) as (client, context):
        with context.session() as session:
            job = stored_jobs.submit(session)
        with client.stream("GET", f"/api/v1/jobs/{job.id}/events", headers=GZIP) as answer:
            assert "content-encoding" not in answer.headers
            assert any(line.startswith("data:") for line in answer.iter_lines())
