"""The grid of seeds and the error map in a real browser: filled in live, walked by keys, and what
is wrong is seen in the picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from playwright.sync_api import Locator, Page, expect
from sqlalchemy.orm import Session

import stored_jobs
from gonogo import emulator
from gonogo.judging.error_maps import error_map
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from gonogo_service.jobs import artifacts
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_workers.messages.rows import plain
from pending_requests import PendingRequests

SMALL: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 256, 500],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
DOWN, ACROSS = 8, 16
"""The number of tiles of SMALL."""


def planted(session: Session, job: JobRow, seed: int, *, mask_missing: bool = False) -> None:
    """Store the error map of the faulty kernel of 2025, as a worker makes it. With `mask_missing`,
    store that of a right kernel that doesn't mask its last tile."""
    test = TestSpec.parse(job.test)
    given = quantise(test, generate(test, seed))
    dx = emulator.run(test, given, "correct" if mask_missing else "tt-train-2025")["dx"].copy()
    if mask_missing:
        dx[:, 480:] += np.float32(0.25)
    right = exact_outputs(test, given)["dx"]
    content = plain(error_map(dx, right, test.numerics.output).to_json())
    items = [{"kind": "error_map", "seed": seed, "repeat": 0, "output": "dx", "content": content}]
    artifacts.add(session, job.id, new_id(), items, now=utcnow())


def settled(chart: Locator, wait: Callable[..., None]) -> bytes:
    """Return the picture of a chart whose animation has ended: two pictures in a row are equal."""
    pictures = [chart.screenshot()]

    def is_still() -> bool:
        pictures.append(chart.screenshot())
        return pictures[-1] == pictures[-2]

    wait(is_still, "the chart moves on and on")
    return pictures[-1]


def test_the_grid_fills_in_live_and_a_seed_is_opened_by_keys(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=40)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.evaluate("window.opened = 1")
    grid = page.locator("[data-grid]")
    expect(grid).to_have_attribute("data-cells", "40")
    expect(grid).to_have_attribute("data-marks", "0")
    with server.writing() as session:
        rows = [stored_jobs.row(seed, wrong=seed == 3) for seed in range(12)]
        stored_jobs.report(
            session, job.id, [*rows, stored_jobs.unwell(20, "hang", "no answer within 600 s")]
        )
    expect(grid).to_have_attribute("data-marks", "13")
    results = page.request.get(f"{server.url}/api/v1/jobs/{job.id}/results?limit=100").json()[
        "items"
    ]
    assert len(results) == 13

    grid.locator(".cells").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(grid.locator("output")).to_have_text("seed 3: Hollow pass")
    page.keyboard.press("Enter")
    expect(page.locator("#seed-title")).to_be_focused()
    expect(page).to_have_url(f"{server.url}/jobs/{job.id}?output=dx&seed=3")
    expect(page.locator("#check-seed")).to_contain_text("--seeds 1 --seed-start 3")
    with server.writing() as session:  # the details stay while the job goes on
        stored_jobs.report(session, job.id, [stored_jobs.row(30, wrong=False)])
    expect(grid).to_have_attribute("data-marks", "14")
    expect(page.locator("#seed-title")).to_have_text("Seed 3")
    page.go_back()
    expect(page.locator("#seed")).to_be_hidden()
    assert page.evaluate("window.opened") == 1, "the page was loaded again"


def test_a_seed_that_is_opened_while_the_page_is_read_is_shown_with_the_next_answer(
    server, page: Page
) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=4)
        stored_jobs.report(
            session, job.id, [stored_jobs.row(seed, wrong=False) for seed in range(2)]
        )
    page.goto(f"{server.url}/jobs/{job.id}")
    pending = PendingRequests(page, f"**/jobs/{job.id}")
    with server.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(2, wrong=False)])
    request = pending.take()
    page.locator("[data-grid] .cells").focus()
    page.keyboard.press("Enter")
    request.continue_()  # this answer knows of no opened seed
    expect(page.locator("#seed-title")).to_be_focused()
    expect(page.locator("#seed-title")).to_have_text("Seed 0")


def test_a_map_tells_stripes_from_a_last_column_and_keys_zoom_both_maps(
    server, page: Page, wait
) -> None:
    with server.writing() as session:
        wrong = stored_jobs.submit(session, test=SMALL, seeds=1)
        unmasked = stored_jobs.submit(session, test=SMALL, seeds=1)
        for job in (wrong, unmasked):
            stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=True)])
            planted(session, job, 0, mask_missing=job is unmasked)
    page.goto(f"{server.url}/jobs/{wrong.id}")
    signed, largest = (
        page.locator(f"[data-chart=chart-map-{name}]") for name in ("signed", "largest")
    )
    expect(signed).to_have_attribute("data-marks", str(DOWN * ACROSS))
    expect(page.locator("#map-words")).to_contain_text("horizontal stripes")
    expect(signed.locator("canvas")).to_have_count(1)  # on paper an upper one hides the lower one
    before = settled(largest, wait)
    signed.locator(".canvas").focus()
    for key in ("+", "+", "ArrowDown"):
        page.keyboard.press(key)
    wait(lambda: largest.screenshot() != before, "the keys do not zoom both maps")
    page.keyboard.press("0")
    wait(lambda: largest.screenshot() == before, "the whole map does not come back")
    page.goto(f"{server.url}/jobs/{unmasked.id}?output=dx")
    expect(largest).to_have_attribute("data-marks", str(DOWN * ACROSS))
    expect(page.locator("#map-words")).to_contain_text(
        "The last column of tiles holds 100% of the error"
    )
