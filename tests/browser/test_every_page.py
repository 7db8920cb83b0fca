"""Every page in a real browser: ordinary and hostile, dark and light, large and small, printed, by
keyboard, judged by axe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Dialog, Page

import node_programs
from gonogo.settings import Settings
from patience import scaled
from populated_database import HOSTILE, House, routes
from servers import Missing
from watched_pages import Watch

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
MAX_FIRST_LOAD = 350 * 1000
MAX_HTML = 150_000
MAX_PHONE = 3000
"""Height of the overview and of a test on a phone, in pixels."""
SCHEMES = ("light", "dark")
NOWHERE = (
    "/nowhere",
    "/jobs/01890000-0000-7000-8000-000000000000",
    "/compare?base=nobody&head=nothing",
)
TWINS, ALONE = routes(SimpleNamespace(settings=Settings.model_construct()))
PAGES = [*TWINS, *ALONE, "/login", *NOWHERE]
"""The paths of the routes, and addresses of none."""
TABS = 12
"""The number of Tab stops that are looked at, at the beginning and at the end of a page."""
MOST_PARTS = 6
"""The number of Tab stops that one field may have: year, month, day, a calendar."""

DRAWN = """() => [...document.querySelectorAll('[data-chart]:not([data-marks])')].every(
    (chart) => !chart.checkVisibility()
        || !document.getElementById(chart.dataset.chart)?.textContent)"""
FACTS = """() => ({
    title: document.title,
    mains: document.querySelectorAll('main').length,
    headings: [...document.querySelectorAll('h1')].map((heading) => heading.textContent.trim()),
    bytes: [...performance.getEntriesByType('navigation'),
        ...performance.getEntriesByType('resource')]
        .reduce((sum, entry) => sum + entry.encodedBodySize, 0),
})"""
STICKS_OUT = """() => {
    const room = document.documentElement.clientWidth;
    const bare = (cell) => cell.checkVisibility() && /^[\\d.,]+$/.test(cell.innerText.trim())
        && !cell.dataset.name;
    const cells = ':is(table.devices td.n, table.jobs td:not(.submitted))';
    const number = room < 620 ? [...document.querySelectorAll(cells)].find(bare) : null;
    // the head is not shown there
    const dash = room < 620 ? [...document.querySelectorAll('main tbody td')].find((cell) =>
        cell.checkVisibility() && cell.innerText.trim() === '–' && !cell.dataset.name
            && !cell.closest('table').tHead?.checkVisibility()) : null;
    if (dash) return 'a dash that does not say of what: ' + dash.outerHTML.slice(0, 90);
    if (number) return 'a number that does not say what it is: ' + number.outerHTML.slice(0, 90);
    if (document.documentElement.scrollWidth <= room) return '';
    const scrolls = (element) => element !== document.documentElement
        && getComputedStyle(element).overflowX !== 'visible';
    const clipped = (element) => { for (let up = element.parentElement; up;
        up = up.parentElement) if (scrolls(up)) return true; return false; };
    const out = [...document.body.querySelectorAll('*')].filter((element) =>
        element.getBoundingClientRect().right > room + 1 && !clipped(element));
    const examples = out.slice(-2).map((element) => element.outerHTML.slice(0, 90)).join(' | ');
    return document.documentElement.scrollWidth + ' px wide on ' + room + ': ' + examples;
}"""
# charts that a screen reader can't read out: without words, or without a table
UNSAID = """() => {
    const text = (id) => document.getElementById(id)?.textContent.trim();
    const described = (figure) => figure.querySelector('figcaption')?.textContent.trim()
        || text(figure.getAttribute('aria-labelledby'));
    const listed = (figure) =>
        figure.querySelector('table') ?? figure.closest('section, .panel')?.querySelector('table');
    return [...document.querySelectorAll('[data-chart]')]
        .filter((figure) => text(figure.dataset.chart) && !(described(figure) && listed(figure)))
        .map((figure) => 'a chart without words or a table: ' + figure.dataset.chart);
}"""
# elements below the end of their panel (a style for another page), and words with one letter a line
MISFITS = """() => {
    const misfits = [];
    const seen = (element) => element.checkVisibility() && !element.closest('.visually-hidden')
        && !element.closest('[role="listbox"]') // a list that opens over the page
        && !element.parentElement.closest('svg, canvas');
    const clipped = (element, panel) => {
        const up = element.parentElement;
        return up && up !== panel && (getComputedStyle(up).overflowY !== 'visible' || clipped(up,
            panel));
    };
    for (const panel of document.querySelectorAll('.panel, .banner')) {
        const end = panel.getBoundingClientRect().bottom + 2;
        const out = (element) => seen(element) && element.getBoundingClientRect().bottom > end
            && !clipped(element, panel);
        const below = [...panel.querySelectorAll('*')].find(out);
        if (below) misfits.push('below its panel: ' + below.outerHTML.slice(0, 120));
    }
    const lines = (element) => {
        const range = document.createRange();
        range.selectNodeContents(element);
        return range.getClientRects().length;
    };
    const words = [...document.querySelectorAll('main :is(td, th, p, a, small, span)')];
    const thin = words.find((element) =>
        !element.childElementCount && seen(element) && lines(element) > 4
            && element.textContent.trim().length < 4 * lines(element));
    if (thin) misfits.push('a letter a line: ' + thin.outerHTML.slice(0, 120));
    return misfits;
}"""
AXE = """async (rules) => {
    const results = await axe.run(document, { resultTypes: ['violations'], ...(rules
        ? { runOnly: rules } : {}) });
    const why = ({ any, all, none }) => [...any, ...all, ...none][0]?.message;
    return results.violations.map(({ id, nodes }) =>
            `${id} x${nodes.length}: ${nodes[0].html.slice(0, 160)} ${why(nodes[0])}`);
}"""
# records where the focus is after each Tab, because asking after each takes longer than the key
FOLLOW_FOCUS = """() => {
    window.stopsOfTab = [];
    addEventListener('keyup', ({ key }) => {
        if (key !== 'Tab') return;
        const at = document.activeElement;
        const style = getComputedStyle(at);
        const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
        // the parts of a date are stops of their own, and the browser shows where one is
        const place = [...document.querySelectorAll('*')].indexOf(at);
        window.stopsOfTab.push([at === document.body ? '' : at.outerHTML.slice(0, 100),
            seen || at.type === 'date', place]);
    }, true);
}"""
TAKE_STOPS = "() => window.stopsOfTab.splice(0)"
# moves the focus to a link or a field near the end
NEAR_THE_END = """(steps) => {
    const stops = 'a[href], button, input, select, textarea, summary';
    const all = [...document.querySelectorAll(stops)].filter(
        (element) => element.checkVisibility() && element.tabIndex >= 0 && !element.disabled
            && element.type !== 'hidden');
    all[Math.max(0, all.length - steps)].focus();
}"""
PRINTED = """() => {
    const shown = (element) => element.checkVisibility();
    const light = (color) => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number);
        return (r * 2 + g * 7 + b) / 10; };
    const problems = [];
    const navigation = [...document.querySelectorAll('nav, footer, .skip')];
    if (navigation.some(shown)) problems.push('navigation is printed');
    const paper = getComputedStyle(document.body).backgroundColor;
    if (light(paper) < 250) problems.push('the paper is not white');
    const text = [...document.querySelectorAll('main h1, main p, main td, main th')].filter(shown);
    const pale = text.filter((element) => light(getComputedStyle(element).color) > 140);
    if (pale.length) problems.push('too pale: ' + pale[0].outerHTML.slice(0,
        120) + getComputedStyle(pale[0]).color);
    return problems;
}"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        folder = node_programs.install(tmp_path_factory.mktemp("axe"))
    except Missing as problem:
        pytest.skip(str(problem))
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


def test_each_page_has_a_twin_and_something_to_show(populated: tuple[Any, House]) -> None:
    server, house = populated
    assert routes(server.app.state.context) == (TWINS, ALONE)
    assert ALONE == ["/docs"], "each page has a JSON twin"
    missing = [route for route in PAGES if "{" in route and route not in house.addresses]
    assert not missing, f"show one of each in tests/support/populated_database.py: {missing}"


@pytest.mark.parametrize("place", range(len(PAGES)), ids=PAGES)
def test_every_page_can_be_read_by_everybody(
    place: int, populated: tuple[Any, House], axe: str, page: Page, watch: Watch
) -> None:
    server, house = populated
    route = PAGES[place]
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    if route in NOWHERE:
        watch.mean("Failed to load resource")  # Chromium logs the status
    wrong: list[str] = []
    page.on("dialog", dismiss)
    with httpx.Client(base_url=server.url) as client:
        for number, path in enumerate(house.addresses.get(route, [route]), place):
            walked = number == place and route not in (*ALONE, *NOWHERE[1:])
            hostile = path in house.hostile
            problems = look(page, axe, server.url + path, number, hostile, walked)
            problems += twin_of(client, path) if route in TWINS else []
            wrong += [f"{path[:90]}: {problem}" for problem in problems]
    page.remove_listener("dialog", dismiss)
    assert not (wrong + dialogs), f"{len(wrong)} problems:\n" + "\n".join(wrong + dialogs)


def look(page: Page, axe: str, url: str, number: int, hostile: bool, walked: bool) -> list[str]:
    """Return what is wrong with a page. It is loaded once, dark or light, small or large by its
    number, and then turned into the others."""
    first = SCHEMES[number % 2], (DESKTOP, PHONE)[number // 2 % 2]
    docs = (
        urlsplit(url).path == "/docs"
    )  # swagger-ui's own page: heavy, light only, and not our markup
    page.emulate_media(color_scheme=first[0], media="screen", reduced_motion="reduce")
    page.set_viewport_size(first[1])
    answer = page.goto(url, wait_until="load")
    assert answer is not None
    size = len(answer.body())
    page.wait_for_function(DRAWN)
    facts = page.evaluate(FACTS)
    problems = [f"{facts['mains']} main landmarks"] * (facts["mains"] != 1)
    problems += [f"{size} bytes of HTML"] * (size > MAX_HTML)
    if not docs:
        problems += [f"its h1: {facts['headings']}"] * (
            len(facts["headings"]) != 1 or not facts["headings"][0]
        )
        problems += [f"{facts['bytes']} bytes on the first load"] * (
            facts["bytes"] > MAX_FIRST_LOAD
        )
        page.evaluate(axe)
        problems += page.evaluate(AXE, None)
        problems += page.evaluate(UNSAID)
        problems += stops(page) if walked else []
    problems += ["no title"] * (not facts["title"].strip())
    if hostile:
        text = page.locator("main").inner_text()
        for copied in page.locator("main .command code").all_inner_texts():  # shown verbatim
            text = text.replace(copied, "")
        problems += ["a name turns the words beside it"] * ("\u202e" in text)
        problems += ["hostile text is not shown"] * (HOSTILE[:28] not in text) + [
            "markup came in"
        ] * page.locator("main img").count()
    # a hostile twin has the colors of the ordinary page, and other words
    sizes = [first[1], PHONE if first[1] is DESKTOP else DESKTOP]
    for scheme in (first[0],) if hostile else (first[0], SCHEMES[number % 2 - 1]):
        if scheme != first[0]:
            page.emulate_media(color_scheme=scheme)
            problems += (
                [f"{scheme}: {problem}" for problem in page.evaluate(AXE, ["color-contrast"])]
                if not docs
                else []
            )
        for size in sizes:
            page.set_viewport_size(size)
            problems += (
                [f"{scheme}, {size['width']} px: {wide}"]
                if (wide := settled(page, STICKS_OUT))
                else []
            )
            tall = int(page.evaluate("document.documentElement.scrollHeight"))
            short = urlsplit(url).path == "/" or urlsplit(url).path.startswith("/tests/")
            problems += [f"{tall} px high on a phone"] * (
                short and size == PHONE and tall > MAX_PHONE
            )
            problems += (
                [f"{size['width']} px, {problem}" for problem in settled(page, MISFITS)]
                if scheme == first[0] and not docs
                else []
            )
        sizes.reverse()  # the other colors begin at the size that is there
    page.emulate_media(media="print")
    problems += [f"printed: {problem}" for problem in page.evaluate(PRINTED)] if not docs else []
    return problems


def settled(page: Page, script: str) -> Any:
    """Return what a script says is wrong; charts follow a change of size a moment later."""
    deadline = time.monotonic() + scaled(0.5)
    while (wrong := page.evaluate(script)) and time.monotonic() < deadline:
        page.wait_for_timeout(25)
    return wrong


def stops(page: Page) -> list[str]:
    """Return what is wrong with the stops of Tab at the beginning of a page and at its end, where
    Tab must leave it."""
    problems: list[str] = []
    places: list[int] = []
    page.evaluate(FOLLOW_FOCUS)
    for part in ("beginning", "end"):
        if part == "end":
            page.evaluate(NEAR_THE_END, TABS)
        for html, seen, place in tabbed(page):
            if not places and "skip" not in html and not page.locator("[autofocus]").count():
                problems.append(f"the first stop is no skip link but {html}")
            if not html or (places and place == places[0]):
                break
            problems += [f"the focus is not seen: {html}"] * (not seen)
            places.append(place)
            if places[-MOST_PARTS:] == [place] * MOST_PARTS:
                return [*problems, f"Tab is stuck at {html}"]
            if part == "beginning" and len(places) == TABS:
                break
        else:
            problems.append(f"Tab does not come to an end: {html}")
    return problems


def tabbed(page: Page) -> Iterator[tuple[str, bool, int]]:
    """Yield where Tab stops, at most twice TABS times: the element, whether its focus is seen, and
    its place in the page."""
    for _ in range(2):
        for _ in range(TABS):
            page.keyboard.press("Tab")
        stops_of_tab = page.evaluate(TAKE_STOPS)
        assert len(stops_of_tab) == TABS, f"{page.url}: {len(stops_of_tab)} of {TABS} Tabs arrived"
        yield from stops_of_tab


def twin_of(client: httpx.Client, path: str) -> list[str]:
    """Return what is wrong with a page's JSON twin."""
    parts = urlsplit(path)
    twin = "/overview.json" if parts.path == "/" else f"{parts.path}.json"
    answer = client.get(f"{twin}?{parts.query}")
    return (
        []
        if answer.status_code == 200 and isinstance(answer.json(), dict)
        else [f"its twin {twin}: {answer.status_code}"]
    )
