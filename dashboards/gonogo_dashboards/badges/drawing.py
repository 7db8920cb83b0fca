"""A badge as SVG: a label and a state; a hollow pass is hatched, so that it is no green. Pure."""

from __future__ import annotations

from html import escape

from gonogo.flakiness.classes import LOST
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import bidi, words

MAX_CHARS = 60
_CHAR, _PAD, _HEIGHT = 6.6, 8, 20
_TONES: dict[str, str] = {
    Verdict.pass_: "#0b7a5c",
    Verdict.pass_by_tolerance: "#b8420a",
    Verdict.fail: "#a3125a",
    Verdict.fail_by_tolerance: "#2468c8",
    Verdict.suspect: "#806200",
    **dict.fromkeys(LOST, "#6a48a8"),
}
_OTHER = "#5b6672"


def svg(label: str, state: str, verdict: str | None) -> str:
    """Return the picture; the verdict gives its color, its sign and its hatching."""
    name = str(bidi.contained(words.brief(label, MAX_CHARS)))
    text = str(bidi.contained(words.brief(state, MAX_CHARS)))
    sign = words.mark(verdict).sign if verdict else "–"
    shown = f"{sign} {text}"
    left, right = (round(len(part) * _CHAR) + 2 * _PAD for part in (name, shown))
    tone = _TONES.get(verdict, _OTHER) if verdict else _OTHER
    hatched = (
        f'<path d="{_hatches(left, right)}" stroke="#fff" stroke-opacity=".22" stroke-width="3"/>'
        if verdict == Verdict.pass_by_tolerance
        else ""
    )
    title = escape(f"{name}: {text}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}"'
        f' role="img" aria-label="{title}"><title>{title}</title>'
        f'<clipPath id="r"><rect width="{left + right}" height="{_HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{_HEIGHT}" fill="#33404f"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{tone}"/>{hatched}</g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{_PAD}" y="14" textLength="{left - 2 * _PAD}">{escape(name)}</text>'
        f'<text x="{left + _PAD}" y="14" textLength="{right - 2 * _PAD}">{escape(shown)}</text>'
        "</g></svg>"
    )


def _hatches(left: int, right: int) -> str:
    return "".join(f"M{x} {_HEIGHT}l{_HEIGHT}-{_HEIGHT}" for x in range(left - 20, left + right, 9))
