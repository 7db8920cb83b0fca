"""The comparator that decided, and what stopped a seed: on each page that shows such a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import stored_jobs
from api import Api, in_process
from gonogo import urls
from gonogo_service.jobs.model import JobRow
from stored_histories import world

BY_PCC = {**stored_jobs.NIGHTLY, "tolerance": {"pcc": 0.9999999}}
DECIDED = "dx, seed 0: PCC 0.99988, needs 0.9999999"
WHY = "killed by SIGSEGV"


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    """A service on an empty database."""
    with in_process(migrated_sqlite_url) as service:
        yield service


def row(seed: int, verdict: str, deficit: float) -> dict[str, Any]:
    """A row of a seed whose dx has this distance from a PCC of 1."""
    result = stored_jobs.row(seed, wrong=verdict == "fail")
    for output in result["outputs"].values():
        output |= {"tolerance_ratio": None, "pcc_deficit": 1e-9}
    result["outputs"]["dx"] |= {"verdict": verdict, "pcc_deficit": deficit}
    return result | {"verdict": verdict}


def ended(api: Api, build: str, rows: list[dict[str, Any]], test: Mapping[str, Any]) -> JobRow:
    """A job that has ended with these rows, and is assessed."""
    with api.context.session() as session:
        job = stored_jobs.submit(session, test=test, build=build, seeds=len(rows))
        stored_jobs.report(session, job.id, rows, diagnosed=True)
        stored_jobs.finish(session, job.id)
    with world(str(api.settings.database_url)) as background:
        background.assess()
    return job


def test_a_test_that_fails_by_pcc_shows_it_on_every_page(api: Api) -> None:
    ended(api, "base", [row(0, "pass", 1e-9)], BY_PCC)
    red = [row(0, "fail_by_tolerance", 1.2e-4)]
    job = ended(api, "head", red, BY_PCC)
    (flag,) = api.client.get("/flags.json").json()["items"]
    test = urls.history(job.test_key, {"branch": "emulator", "build": "head"})
    pages = (urls.job(job.id), test, urls.flag(flag["id"]), urls.compare("base", "head"))
    missing = [path for path in pages if DECIDED not in api.client.get(path).text]
    assert not missing
    seed = api.client.get(urls.job(job.id, seed=(0, 0))).text
    panel = seed.partition('aria-labelledby="seed-title"')[2].partition("</section>")[0]
    assert "PCC 0.99988, needs 0.9999999" in panel  # of dx; the others meet it
    assert "PCC 0.999999999, needs 0.9999999" in panel
    row_of_flag = api.client.get("/").text.partition('class="flag-rows"')[2]
    assert "the tolerance is tighter than the formats allow" in row_of_flag
    assert "pcc 1" not in api.client.get(urls.compare("base", "head")).text


def test_the_panel_of_a_seed_names_allclose_where_it_decides(api: Api) -> None:
    job = ended(api, "base", [stored_jobs.row(0, wrong=True)], stored_jobs.NIGHTLY)
    seed = api.client.get(urls.job(job.id, seed=(0, 0))).text
    panel = seed.partition('aria-labelledby="seed-title"')[2].partition("</section>")[0]
    assert "(allclose)" in panel


def test_a_crash_says_what_stopped_it_and_not_the_diagnosis_of_another_seed(api: Api) -> None:
    rows = [stored_jobs.unwell(0, "crash", WHY), stored_jobs.row(1, wrong=True)]
    job = ended(api, "head", rows, stored_jobs.NIGHTLY)
    for path, start in ((urls.job(job.id), 'id="banner"'), (urls.history(job.test_key), "grade")):
        banner = api.client.get(path).text.partition(start)[2].partition("</section>")[0]
        assert f"Seed 0: {WHY}" in banner, path
        assert stored_jobs.FAULT not in banner, path
