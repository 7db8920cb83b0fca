"""Make the pictures in docs/pictures: `make pictures` or `python -m benchmarks.pictures`.

Names choose pictures; the default is all.

They show a database that tests/support/picture_story.py fills, so they can be made again at any
time. Its numbers are invented after the acceptance figures; the service's own functions store,
judge and assess them. Needs the tests' packages and chromium, or the browser that GONOGO_CHROMIUM
names.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from playwright.sync_api import Browser, expect, sync_playwright

from benchmarks.pages import chromium, served
from benchmarks.small_png import smaller

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
MOST_BYTES = 150_000
WIDTH, PHONE = 1280, 390
Scheme = Literal["light", "dark"]


class Picture(NamedTuple):
    """A file of docs/pictures, and how it is taken."""

    file: str
    page: str
    height: int
    scheme: Scheme = "light"
    width: int = WIDTH


PICTURES = (
    Picture("overview.png", "overview", 900),
    Picture("tests.png", "tests", 800),
    Picture("test.png", "test", 1000),
    Picture("job.png", "job", 1180),
    Picture("job-dark.png", "job", 1180, "dark"),
    Picture("job-phone.png", "job", 1180, width=PHONE),
    Picture("matrix.png", "matrix", 700),
    Picture("flags.png", "flags", 700),
    Picture("flag.png", "flag", 800),
    Picture("worse.png", "worse", 700),
    Picture("gauge.png", "gauge", 1000),
    Picture("tolerances.png", "tolerances", 900),
    Picture("bisection.png", "bisection", 900),
    Picture("compare.png", "compare", 900),
    Picture("overview-dark.png", "overview", 900, "dark"),
    Picture("overview-phone.png", "overview", 844, width=PHONE),
    Picture("test-dark.png", "test", 900, "dark"),
    Picture("test-phone.png", "test", 844, width=PHONE),
    Picture("devices.png", "devices", 700),
    Picture("device.png", "device", 900),
    Picture("jobs.png", "jobs", 800),
    Picture("submit.png", "submit", 900),
    Picture("runs.png", "runs", 500),
    Picture("run.png", "run", 700),
    Picture("webhooks.png", "webhooks", 500),
    Picture("webhook.png", "webhook", 700),
    Picture("hooks.png", "hooks", 500),
    Picture("rules.png", "rules", 500),
    Picture("builds.png", "builds", 700),
    Picture("search.png", "search", 600),
    Picture("gauge-form.png", "gauge-form", 600),
)


def main(words: list[str] | None = None) -> int:
    """Take the chosen pictures; 2 without a browser."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"some of {', '.join(picture.file for picture in PICTURES)}",
    )
    names = parser.parse_args(words).names or [picture.file for picture in PICTURES]
    if unknown := set(names) - {picture.file for picture in PICTURES}:
        parser.error(f"no picture {', '.join(sorted(unknown))}")
    program = chromium()
    if program is None:
        print("chromium is not installed", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="gonogo-pictures-") as folder,
        sync_playwright() as playwright,
    ):
        file = Path(folder) / "gonogo.sqlite"
        pages = seeded(f"sqlite:///{file}")
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        with served(f"sqlite:///{file}") as (url, _):
            for picture in PICTURES:
                if picture.file in names:
                    take(browser, url + pages[picture.page], picture)
        browser.close()
    return 0


def seeded(database_url: str) -> dict[str, str]:
    """A page of each kind, by name, in a fresh database."""
    support = ROOT / "tests" / "support"
    sys.path[:0] = [str(support), str(support / "hooks"), str(support / "programs")]
    gallery, api = (importlib.import_module(name) for name in ("picture_story", "api"))
    with api.in_process(database_url) as service:
        pages: dict[str, str] = gallery.fill(service)
    return pages


def take(browser: Browser, url: str, picture: Picture) -> None:
    """Take one picture of a page's first screen, once its charts are drawn; it is never cut."""
    options: dict[str, Any] = {"color_scheme": picture.scheme, "reduced_motion": "reduce"}
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height}, **options
    )
    page = context.new_page()
    answer = page.goto(url)
    assert answer is not None
    assert answer.ok, f"{url}: {answer.status}"
    expect(page.locator("[data-chart]:not([data-marks])").filter(visible=True)).to_have_count(0)
    height = min(picture.height, int(page.evaluate("document.documentElement.scrollHeight")))
    image = page.screenshot(clip={"x": 0, "y": 0, "width": picture.width, "height": height})
    image = smaller(image, browser.new_page())
    if len(image) > MOST_BYTES:
        raise SystemExit(f"{picture.file}: {len(image)} bytes; at most {MOST_BYTES} are kept")
    (FOLDER / picture.file).write_bytes(image)
    context.close()
    print(f"docs/pictures/{picture.file}: {len(image) / 1000:.0f} kB, {picture.width}x{height}")


if __name__ == "__main__":
    sys.exit(main())
