"""The cells of the build matrix as HTML, because a template is too slow for a thousand cells."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.build_cells import HOLLOW
from gonogo_dashboards.matrix.matrix_page import MatrixCell

_NOT_RUN = '<td class="cell"><span class="no"><span class="visually-hidden">Not run</span></span>\n'


class Cells:
    """The cells of one page: a shape that names its mark, and the seeds in words.

    A thousand addresses would be most of a page, so web/src/matrix.js makes each cell a link: the
    row's `data-to` with the column's build. `marks` draws the marks that the cells used.
    """

    def __init__(self) -> None:
        self._looks: dict[tuple[str, bool, bool], tuple[str, str]] = {}
        self._marks: dict[str, str] = {}

    def row(self, cells: Sequence[MatrixCell | None]) -> Markup:
        """Return the `td` of a row."""
        parts = []
        for cell in cells:
            if cell is None:
                parts.append(_NOT_RUN)
                continue
            start, mark = self._look(cell.verdict, cell.hollow, cell.lost > 0)
            parts.append(f"{start}<svg><title>{escape(cell.seeds_words)}</title>{mark}</svg>\n")
        return Markup("".join(parts))  # every given value is escaped above

    def marks(self) -> Markup:
        """Return the marks that the cells of this page used so far."""
        drawn = "".join(
            f'<symbol id="m-{escape(verdict)}" viewBox="0 0 16 16"><path d="{path}"/></symbol>'
            for verdict, path in self._marks.items()
        )
        return Markup(f'<svg class="shapes" width="0" height="0" aria-hidden="true">{drawn}</svg>')

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
            self._marks[shown] = words.mark(shown).path
            self._looks[key] = (
                f'<td class="{escape(" ".join(classes))}">',
                f'<use href="#m-{escape(shown)}"/>',
            )
        return self._looks[key]
