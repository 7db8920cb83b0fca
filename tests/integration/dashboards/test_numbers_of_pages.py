"""Twenty numbers of pages, each recomputed from the API: all are equal."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import compared_builds
import populated_database
from api import Api, in_process
from gonogo import urls

COMPARED = urls.compare(compared_builds.BASE, compared_builds.HEAD)
HOLLOW = ("pass_by_tolerance",)
RED = "fail", "fail_by_tolerance", "hang", "crash"
LOST = "error", "crash", "hang"


@dataclass
class Lab:
    """A populated server, its pages, and what the API says of its tests."""

    api: Api
    house: populated_database.House
    histories: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for test in self.api.get("/tests?limit=200")["items"]:
            self.histories[test["key"]] = self.api.get(f"/tests/{test['key']}")

    def shown(self, address: str, pattern: str) -> int:
        """Return the first number that a page shows by a pattern, in which N stands for it."""
        page = self.api.client.get(address).text
        if not address.endswith(".svg"):
            page = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
        hits = re.search(pattern.replace("N", r"([\d,]+)"), page, re.DOTALL)
        assert hits, (address, pattern)
        return int(hits[1].replace(",", ""))

    def newest(self, branch: str | None = None) -> dict[str, list[Any]]:
        """Return the newest build of each variant, by the test's key."""
        return {
            key: [
                build
                for variant in history["variants"]
                for build in variant["builds"]
                if build["build"] == variant["build"] and branch in (None, variant["branch"])
            ]
            for key, history in self.histories.items()
        }

    def standing(self, verdicts: tuple[str, ...], branch: str | None = None) -> int:
        """Return how many tests have such a seed on a newest build; red also by its own tests."""
        return sum(
            any(
                any(build["counts"].get(verdict) for verdict in verdicts)
                or (verdicts == RED and self.job(build["last_job"])["outcomes_failed"])
                for build in builds
            )
            for builds in self.newest(branch).values()
        )

    def on_build(self, build: str, verdicts: tuple[str, ...]) -> int:
        """Return how many tests have such a seed on a build."""
        of_build = (
            one
            for history in self.histories.values()
            for variant in history["variants"]
            for one in variant["builds"]
            if one["build"] == build
        )
        return sum(
            any(one["counts"].get(verdict) for verdict in verdicts)
            or (verdicts == RED and self.job(one["last_job"])["outcomes_failed"])
            for one in of_build
        )

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job, and whether one of its existing tests failed."""
        job = self.api.client.get(f"/api/v1/jobs/{job_id}").json()
        return {**job, "outcomes_failed": (job["outcomes"] or {}).get("failed", 0) > 0}

    def compared(self, *kinds: str) -> int:
        """Return how many tests of the comparison are of these classes."""
        counts = self.api.get("/compare" + COMPARED.partition("/compare")[2])["counts"]
        return sum(counts.get(kind, 0) for kind in kinds)

    def compared_red(self) -> int:
        """Return how many tests of the comparison are red on head, tests of a selection each."""
        items = self.api.get("/compare" + COMPARED.partition("/compare")[2])["items"]
        heads = [item["head"] for item in items if item["head"]]
        return sum(
            any(head["counts"].get(verdict) for verdict in RED) or head["not_judged_red"] > 0
            for head in heads
        )

    def ran(self) -> int:
        """Return how many tests ran."""
        return sum(map(bool, self.newest().values()))

    def flagged(self) -> int:
        """Return how many tests have an open flag."""
        return len({flag["test_key"] for flag in self.api.get("/flags?limit=200")["items"]})

    def newly(self, verdicts: tuple[str, ...]) -> int:
        """Return how many variants of main have such a seed; all ran for the first time."""
        of_main = (build for builds in self.newest("main").values() for build in builds)
        return sum(any(build["counts"].get(one) for one in verdicts) for build in of_main)

    @property
    def run(self) -> Any:
        """Return the finished run."""
        (run,) = (run for run in self.api.get("/runs")["items"] if run["state"] == "finished")
        return run

    @property
    def hollow_job(self) -> Any:
        """Return the job with hollow, lost and hung seeds."""
        (address,) = (
            path for path in self.house.hostile if path.startswith("/jobs/") and self._lost(path)
        )
        return self.job(address.removeprefix("/jobs/"))

    def _lost(self, address: str) -> bool:
        return bool(self.job(address.removeprefix("/jobs/"))["counts"].get("hang"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    database = tmp_path_factory.mktemp("numbers") / "gonogo.sqlite"
    with in_process(f"sqlite:///{database}") as api:
        api.client.event_hooks = {}
        yield Lab(api, populated_database.fill(api))


NUMBERS: dict[str, tuple[Any, str, Any]] = {
    # the page's address, the pattern of its number, and the number by the API
    "hollow tile": (urls.OVERVIEW, "N</strong> <span>Hollow<", lambda lab: lab.standing(HOLLOW)),
    "red tile": (urls.OVERVIEW, "N</strong> <span>Red<", lambda lab: lab.standing(RED)),
    "lost": (urls.OVERVIEW, "N</strong><span>tests? with crashes", lambda lab: lab.standing(LOST)),
    "tests of the tile": (urls.OVERVIEW, "of N tests in 30 days", lambda lab: lab.ran()),
    "devices": (
        urls.OVERVIEW,
        "of N devices",
        lambda lab: len(lab.api.get("/devices")["items"]),
    ),
    "open flags": (
        urls.OVERVIEW,
        'flag-count"[^>]*>N<',
        lambda lab: len(lab.api.get("/flags?limit=200")["items"]),
    ),
    "hollow passes by kind": (
        urls.OVERVIEW,
        "Hollow pass N</span>",
        lambda lab: len(lab.api.get("/flags?kind=passes_by_tolerance&limit=200")["items"]),
    ),
    "newly hollow": (urls.OVERVIEW, "newly hollow N", lambda lab: lab.newly(HOLLOW)),
    "hollow chip": (urls.TESTS, "Hollow N<", lambda lab: lab.standing(HOLLOW)),
    "red chip": (urls.TESTS, "Red N<", lambda lab: lab.standing(RED)),
    "flags chip": (urls.TESTS, "Open flags N<", lambda lab: lab.flagged()),
    "hollow of the badge": (
        "/badges/branches/main.svg",
        'aria-label="[^"]*, N hollow',
        lambda lab: lab.standing(HOLLOW, "main"),
    ),
    "red of the badge": (
        "/badges/branches/main.svg",
        'aria-label="main: N red',
        lambda lab: lab.standing(RED, "main"),
    ),
    "hollow of the matrix": (
        urls.matrix({"branch": "main", "until": compared_builds.HEAD}),
        "Hollow passes</th><td>(?:<strong>)?N",
        lambda lab: lab.on_build(compared_builds.HEAD, HOLLOW),
    ),
    "red of the matrix": (
        urls.matrix({"branch": "main", "until": compared_builds.HEAD}),
        "Red</th><td>(?:<strong>)?N",
        lambda lab: lab.on_build(compared_builds.HEAD, RED),
    ),
    "red of the comparison": (
        COMPARED,
        "Red</span></dt><dd><strong>N",
        lambda lab: lab.compared_red(),
    ),
    "new failures": (COMPARED, "N new failures", lambda lab: lab.compared("new_failure")),
    "new hollow passes": (
        COMPARED,
        "N new hollow passes",
        lambda lab: lab.compared("new_hollow_pass"),
    ),
    "hollow seeds of a job": (
        lambda lab: urls.job(lab.hollow_job["id"]),
        "N seeds passed only by the tolerance",
        lambda lab: lab.hollow_job["hollow"],
    ),
    "jobs of a run": (
        lambda lab: urls.run(lab.run["id"]),
        "of N jobs",
        lambda lab: lab.run["jobs"]["total"],
    ),
    "seeds of a test": (
        lambda lab: urls.history(lab.hollow_job["test_key"], {"branch": "emulator"}),
        'data-name="seeds">N<',
        lambda lab: lab.hollow_job["done"],
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_a_page_is_that_of_the_api(lab: Lab, name: str) -> None:
    address, pattern, expected = NUMBERS[name]
    address = address(lab) if callable(address) else address
    shown, computed = lab.shown(address, pattern), expected(lab)
    print(f"{name}: {shown} on {address}, {computed} by the API")
    assert shown == computed


def test_the_csv_of_tests_has_the_tests_of_the_tile(lab: Lab) -> None:
    lines = csv.DictReader(io.StringIO(lab.api.client.get(f"{urls.TESTS}.csv").text))
    hollow = Counter(line["hollow"].lower() for line in lines)
    assert hollow["true"] == lab.standing(HOLLOW)
