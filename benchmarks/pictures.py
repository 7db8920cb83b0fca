"""The pictures of the pages in docs/pictures: `python -m benchmarks.pictures [--url URL]`, after `gonogo demo` filled a running service.

Every number in them was measured by that service; this script only looks. Needs playwright and Debian's chromium, or the browser that
GONOGO_CHROMIUM names.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Literal

import httpx
from playwright.sync_api import Browser, expect, sync_playwright

import settings

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
HOLLOW = "pass_by_tolerance"
WIDTH, PHONE = 1180, 390
Scheme = Literal["light", "dark"]


def main() -> int:
    """Take every picture; 2 when there is nothing to look at."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="the running service; default: the one that var/up.json names")
    url = (parser.parse_args().url or running()).rstrip("/")
    jobs = httpx.get(f"{url}/jobs.json", params={"verdict": HOLLOW, "limit": 1}).raise_for_status().json()["items"]
    program = os.environ.get("GONOGO_CHROMIUM") or shutil.which("chromium")
    if not jobs or program is None:
        print("no job passed by tolerance yet: run `gonogo demo` first" if program else "chromium is not installed", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    job = url + jobs[0]["url"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else [])
        take(browser, job, "job.png", "light", WIDTH, 1180)
        take(browser, job, "job-dark.png", "dark", WIDTH, 1180)
        take(browser, job, "job-phone.png", "light", PHONE, 1180)
        take(browser, url, "overview.png", "light", WIDTH, 640)
        browser.close()
    return 0


def running() -> str:
    """The address of the service that `gonogo up` runs in this folder."""
    record = json.loads((Path(settings.load().var_dir) / "up.json").read_text())
    return str(record["url"])


def take(browser: Browser, url: str, name: str, scheme: Scheme, width: int, height: int) -> None:
    """One picture, of the top of the page, once its charts are drawn."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    answer = page.goto(url)
    assert answer is not None
    assert answer.ok, f"{url}: {answer.status}"
    expect(page.locator("[data-chart]:not([data-marks])").filter(visible=True)).to_have_count(0)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=FOLDER / name)
    context.close()
    print(f"docs/pictures/{name}: {(FOLDER / name).stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    sys.exit(main())
