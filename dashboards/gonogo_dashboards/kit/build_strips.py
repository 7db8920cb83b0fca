"""Tests' last builds as small drawings, because a template is too slow for a thousand cells.

A cell differs by shape, not by color alone: a hollow pass is hatched, a failure is a full cell with
a cross, and a corner means that some seeds were lost. Shapes, and the words of cells that are
alike, stand once on a page; each cell only names them. web/src/strips.js shows the words where a
browser doesn't by itself.
"""

from __future__ import annotations

from html import escape

from markupsafe import Markup

from gonogo.flakiness.classes import LOST
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import bidi, words
from gonogo_dashboards.kit.build_cells import HOLLOW, BuildCell, RecentBuilds

WIDTH, HEIGHT, STEP = 12, 18, 14
_BOX = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="2" fill="currentColor"'
_CORNER = f'<path class="v-error toned" d="M5 0H{WIDTH}V7Z" fill="currentColor"/>'
"""Some seeds of the build hung, crashed or met an error."""
_HATCH = "".join(f"M0 {end}L{WIDTH} {end - WIDTH}" for end in range(3, HEIGHT + WIDTH, 5))


class Strips:
    """The strips of one page; `shapes` draws those that they used, and comes after them."""

    def __init__(self, columns: int, align: str = "xMaxYMid") -> None:
        """Columns of each strip; `align` is the SVG's preserveAspectRatio."""
        self._columns = columns
        self._align = align
        # names are short: a page has 1,200 cells
        self._used: dict[tuple[str, bool, bool], str] = {}
        self._worded_shapes: dict[tuple[str, str], str] = {}

    def strip(self, recent: RecentBuilds, marked: str | None = None) -> Markup:
        """Return a test's last builds, the newest at the right end, with a frame around one.

        The caller says `recent.words` to readers who don't see it.
        """
        free = max(0, self._columns - len(recent.cells))
        cells = "".join(
            self._cell(cell, (free + place) * STEP) for place, cell in enumerate(recent.cells)
        )
        for place, cell in enumerate(recent.cells):
            if cell.build == marked:
                left = (free + place) * STEP - 1
                cells += (
                    f'<rect class="b-marked" x="{left}" y="0" width="{STEP}" height="{HEIGHT}"/>'
                )
        return Markup(  # every given value is escaped
            f'<svg class="builds" viewBox="0 0 {self._columns * STEP} {HEIGHT}"'
            f' preserveAspectRatio="{self._align}" aria-hidden="true">{cells}</svg>'
        )

    def _cell(self, cell: BuildCell, x: int) -> str:
        partly_lost = cell.lost and cell.verdict not in LOST
        shape = cell.verdict, cell.hollow or cell.verdict == HOLLOW, partly_lost
        name = self._used.setdefault(shape, f"b{len(self._used)}")
        if not cell.event:
            return f'<use href="#{self._worded(name, cell.words)}" x="{x}"/>'
        title = _escaped(f"{cell.words}; {cell.event}")
        line = f'<path class="event" d="M{x - 1} 0V{HEIGHT}"/>'
        return f'<use href="#{name}" x="{x}"><title>{title}</title></use>{line}'

    def _worded(self, shape: str, words_shown: str) -> str:
        """Return the name of a shape with these words."""
        return self._worded_shapes.setdefault((shape, words_shown), f"c{len(self._worded_shapes)}")

    def shapes(self) -> Markup:
        """Return the shapes that the strips of this page used so far."""
        drawn = "".join(
            f'<symbol id="{name}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
            f' height="{HEIGHT}"><g class="v-{escape(verdict)} toned">{_shape(verdict, hollow)}'
            f"</g>{_CORNER if lost else ''}</symbol>"
            for (verdict, hollow, lost), name in self._used.items()
        )
        drawn += "".join(
            f'<g id="{name}"><title>{_escaped(words_shown)}</title><use href="#{shape}"/></g>'
            for (shape, words_shown), name in self._worded_shapes.items()
        )
        return Markup(f'<svg class="shapes" width="0" height="0" aria-hidden="true">{drawn}</svg>')


def _escaped(text: str) -> str:
    return escape(str(bidi.contained(text)))


def _shape(verdict: str, hollow: bool) -> str:
    mark = f'<path transform="translate(1 4) scale(.62)" d="{words.mark(verdict).path}"'
    if hollow:
        return (
            f'{_BOX} class="b-ground"/><path d="{_HATCH}" class="b-hatches"/>'
            f'<circle cx="6" cy="9" r="5.6" class="b-back"/>{mark} fill="currentColor"/>'
        )
    if verdict == Verdict.fail:
        return f'{_BOX}/>{mark} class="b-back"/>'
    return f'{_BOX} fill-opacity=".2"/>{mark} fill="currentColor"/>'
