"""The cells of the build matrix as HTML, because a template is too slow for a thousand cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from markupsafe import Markup

from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.matrix.matrix_page import HOLLOW, MatrixCell

_NOT_RUN = (
    '<td class="cell"><span class="no"><span class="visually-hidden">Not run</span></span></td>\n'
)


class Cells:
    """The cells of one page; `shape` draws a verdict (the macro of parts.html)."""

    def __init__(self, shape: Callable[[str], str]) -> None:
        self._shape = shape
        self._looks: dict[tuple[str, bool, bool], tuple[str, str]] = {}

    def row(self, cells: Sequence[MatrixCell | None], place: int) -> Markup:
        """Return the `td` of a row, its cells numbered from 1: web/src/matrix.js uses these ids.

        The title is also the link's name.
        """
        parts = []
        for number, cell in enumerate(cells, 1):
            if cell is None:
                parts.append(_NOT_RUN)
                continue
            start, mark = self._look(cell.verdict, cell.hollow, cell.lost > 0)
            link = (
                f'<a id="cell-{place}-{number}" tabindex="-1" href="{escape(cell.url)}"'
                f' title="{escape(cell.words)}">'
            )
            parts.append(f"{start}{link}{mark}</a></td>\n")
        return Markup("".join(parts))  # every given value is escaped above

    def _look(self, verdict: str, hollow: bool, partly: bool) -> tuple[str, str]:
        """Return the start of a cell, and its drawing."""
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
