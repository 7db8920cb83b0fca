"""The strips of a test's last builds: each shape is drawn once, and a page of them stays small."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from gonogo_dashboards.kit import build_cells
from gonogo_dashboards.kit.build_cells import BuildCell, RecentBuilds
from gonogo_dashboards.kit.build_strips import Strips
from gonogo_service.tests.recent_builds import BuildResult

TESTS, BUILDS = 60, 20
MAX_BYTES = 50_000
"""The strips' part of the 150 kB that a page may have."""


def recent(test: int) -> RecentBuilds:
    """A test that is hollow on every third build."""
    cells = []
    for build in range(BUILDS):
        name, hollow = f"{build:02d}c0ffee{build:02d}", (build + test) % 3 == 0
        verdict = "pass_by_tolerance" if hollow else "pass"
        label = "2 hollow pass" if hollow else "2 pass"
        cells.append(BuildCell(name, verdict, hollow, False, f"{name}: {label}"))
    return RecentBuilds(tuple(cells), "")


def test_sixty_tests_on_twenty_builds_leave_room_for_the_rest_of_the_page() -> None:
    strips = Strips(BUILDS)
    html = "".join(str(strips.strip(recent(test))) for test in range(TESTS))
    assert len(html + str(strips.shapes())) < MAX_BYTES


def test_each_cell_names_words_and_a_shape_that_stand_once() -> None:
    strips = Strips(BUILDS)
    named = set(
        re.findall(r'href="#(\w+)"', str(strips.strip(recent(0)) + strips.strip(recent(3))))
    )
    drawn = str(strips.shapes())
    assert sorted(re.findall(r'<g id="(\w+)"', drawn)) == sorted(named)
    assert len(named) == BUILDS, "two strips that are alike share the words of their cells"
    assert set(re.findall(r'href="#(\w+)"', drawn)) == set(re.findall(r'symbol id="(\w+)"', drawn))
    assert drawn.count("<symbol") == 2
    assert "<title>00c0ffee00: 2 hollow pass</title>" in drawn


def test_a_cell_with_a_change_says_it_itself() -> None:
    cell = BuildCell("b2", "pass", False, False, "b2: 2 pass", "firmware 18 until here")
    strip = str(Strips(BUILDS).strip(RecentBuilds((cell,), "")))
    assert "<title>b2: 2 pass; firmware 18 until here</title>" in strip
    assert '<path class="event"' in strip


def test_a_strip_that_starts_at_the_left_says_so() -> None:
    assert 'preserveAspectRatio="xMinYMid"' in Strips(BUILDS, "xMinYMid").strip(recent(0))


def test_a_green_build_with_lost_seeds_has_a_corner_and_the_words_name_it() -> None:
    strips = Strips(BUILDS)
    cells = [BuildCell("b1", "pass", False, lost, "b1: 2 pass") for lost in (False, True)]
    strips.strip(RecentBuilds(tuple(cells), ""))
    whole, lossy = str(strips.shapes()).split("</symbol>")[:2]
    assert 'class="v-error toned"' in lossy
    assert "v-error" not in whole
    at = datetime(2026, 11, 27, tzinfo=UTC)
    counts = ({"pass": 4, "crash": 2}, {"pass": 6}, {"hang": 1})
    results = [
        BuildResult(f"b{place}", one, at, "job", None, 0) for place, one in enumerate(counts)
    ]
    text = build_cells.recent(results).words
    assert text == "The last 3 builds: 1 without a result, 1 with hangs, crashes or errors"
