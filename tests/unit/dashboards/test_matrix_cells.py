"""The cells of the build matrix as HTML: their content, and that nothing in a name gets out of its
attribute."""

from __future__ import annotations

from gonogo_dashboards.matrix import cells
from gonogo_dashboards.matrix.matrix_rows import MatrixCell

EVIL = """"><img src=x onerror=alert('1')>&"""


def cell(verdict: str, *, hollow: bool = False, lost: int = 0, name: str = "b1") -> MatrixCell:
    return MatrixCell(verdict, hollow, lost, 4, f"4 {name}")


def test_cells_name_their_mark_which_a_page_draws_once() -> None:
    html = cells.row(
        [
            cell("pass"),
            None,
            cell("fail", hollow=True),
            cell("suspect", hollow=True),
            cell("pass", lost=1),
            cell("pass"),
        ]
    )
    assert html.count("<title>4 b1</title>") == 5
    assert html.count("Not run") == 1
    for look in ("cell v-pass", "cell v-fail hollow", "cell v-pass partly"):
        assert f'<td class="{look}">' in html
    # hollow is unmistakable, unless there is worse
    for verdict, times in (("pass", 3), ("fail", 1), ("pass_by_tolerance", 1), ("suspect", 0)):
        assert html.count(f'<use href="#m-{verdict}"/>') == times
        assert cells.marks().count(f'id="m-{verdict}"') == 1


def test_nothing_in_a_name_gets_out_of_its_attribute() -> None:
    html = cells.row([cell(EVIL, name=EVIL)])
    assert "<img" not in html
    assert html.count('"') == 2 * 2  # class and href
