"""The route of the build matrix, and its JSON version."""

from __future__ import annotations

from gonogo import urls
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.matrix import cells, matrix_page

NAVIGATION = (Entry("matrix", "Matrix", urls.MATRIX, "Results", 5),)
TEMPLATE_NAMES = {"matrix_cells": cells}


def add(site: Site) -> None:
    """Add the page."""
    site.add_list(
        urls.MATRIX,
        "matrix/matrix.html",
        matrix_page.MatrixLine,
        matrix_page.read,
        "Which tests are hollow, on which builds?",
    )
