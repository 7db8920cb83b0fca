"""The last lines before a crash: on the first screen, and the end of them, on a phone, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, expect

import stored_jobs
from gonogo_service.jobs import artifacts
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id

SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
LAST = "TT_FATAL: circular buffer 24 holds 0 of 2 pages"
LINES = [f"loaded kernels/layernorm/reader_unary_interleaved_ln.cpp at {n:#x}" for n in range(300)]
SHOWN = """(log) => {
    const end = document.createRange();
    end.setStart(log.lastChild, log.lastChild.length - 1);
    end.setEnd(log.lastChild, log.lastChild.length);
    const line = end.getBoundingClientRect();
    const box = log.getBoundingClientRect();
    return line.top >= box.top && line.bottom <= box.bottom && box.bottom <= innerHeight;
}"""


@pytest.mark.parametrize("size", SIZES)
def test_the_end_of_the_log_is_what_one_sees_first(
    server, open_context: Callable[..., BrowserContext], size: str
) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=1)
        stored_jobs.report(session, job.id, [stored_jobs.unwell(0, "crash", "SIGSEGV")])
        content = {"text": "\n".join([*LINES, LAST])}
        log = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": content}
        artifacts.add(session, job.id, new_id(), [log], now=utcnow())
        stored_jobs.finish(session, job.id)
    page = open_context(size=SIZES[size]).new_page()
    page.goto(f"{server.url}/jobs/{job.id}")
    last_lines = page.locator(".last-lines pre")
    expect(last_lines).to_contain_text(LAST)
    assert last_lines.evaluate(SHOWN)
    gap = page.evaluate(
        """document.querySelector('.last-lines').getBoundingClientRect().top
            - document.querySelector('#banner .banner').getBoundingClientRect().bottom"""
    )
    assert gap > 0
