"""The cells of the build matrix: a template would take too long for a thousand of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from html import escape

from markupsafe import Markup

from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.build_cells import HOLLOW
from gonogo_dashboards.matrix.matrix_rows import MatrixCell

_NOT_RUN = '<td class="cell"><span class="no"><span class="visually-hidden">Not run</span></span>\n'


def row(cells: Iterable[MatrixCell | None]) -> Markup:
    """Return the `td` of a row; every given value is escaped.

    A thousand addresses would be most of a page, so web/src/matrix.js makes each cell a link: the
    row's `data-to` with the column's build.
    """
    drawn = (
        _cell(cell.verdict, cell.hollow, cell.lost > 0, cell.words) if cell else _NOT_RUN
        for cell in cells
    )
    return Markup("".join(drawn))


@lru_cache(maxsize=4096)
def _cell(verdict: str, hollow: bool, partly: bool, seeds: str) -> str:
    looks = f"cell v-{verdict}{' hollow' if hollow else ''}{' partly' if partly else ''}"
    shown = HOLLOW if hollow and verdict != Verdict.fail else verdict
    mark = f'<title>{escape(seeds)}</title><use href="#m-{escape(shown)}"/>'
    return f'<td class="{escape(looks)}"><svg>{mark}</svg>\n'


@lru_cache(maxsize=1)
def marks() -> Markup:
    """Return the marks that cells name, which a page has once."""
    paths = {verdict: words.mark(verdict).path for verdict in WORST_FIRST}
    drawn = "".join(
        f'<symbol id="m-{verdict}" viewBox="0 0 16 16"><path d="{path}"/></symbol>'
        for verdict, path in paths.items()
    )
    return Markup(f'<svg class="shapes" width="0" height="0" aria-hidden="true">{drawn}</svg>')
