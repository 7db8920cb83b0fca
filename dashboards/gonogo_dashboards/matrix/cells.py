"""The cells of the build matrix as HTML: a page has a thousand, and a template takes most of the
page's time for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from markupsafe import Markup

from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.matrix.matrix_page import HOLLOW, MatrixCell

_NOTHING = '<td class="cell"><span class="no"><span class="visually-hidden">did not run</span></span></td>\n'


class Cells:
    """Draws the cells of one page. `shape`: the drawing of a verdict (the macro of parts.html)."""

    def __init__(self, shape: Callable[[str], str]) -> None:
        self._shape = shape
        self._looks: dict[tuple[str, bool, bool], tuple[str, str]] = {}

    def row(self, cells: Sequence[MatrixCell | None], place: int) -> Markup:
        """The `td` of a row, its cells numbered from 1: web/src/matrix.js goes by these ids. The
        title is the link's name, too.
        """
        made = []
        for number, cell in enumerate(cells, 1):
            if cell is None:
                made.append(_NOTHING)
                continue
            start, mark = self._look(cell.verdict, cell.hollow, cell.lost > 0)
            link = f'<a id="cell-{place}-{number}" tabindex="-1" href="{escape(cell.url)}" title="{escape(cell.words)}">'
            made.append(f"{start}{link}{mark}</a></td>\n")
        return Markup("".join(made))  # everything that was given is escaped above

    def _look(self, verdict: str, hollow: bool, partly: bool) -> tuple[str, str]:
        """The start of a cell, and its drawing."""
        key = verdict, hollow, partly
        if key not in self._looks:
            classes = [
                "cell",
                f"v-{verdict}",
                *(["hollow"] if hollow else []),
                *(["partly"] if partly else []),
            ]
            shown = HOLLOW.value if hollow and verdict != Verdict.fail else verdict
            self._looks[key] = f'<td class="{escape(" ".join(classes))}">', str(self._shape(shown))
        return self._looks[key]
