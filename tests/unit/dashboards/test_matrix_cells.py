"""The cells of the build matrix as HTML: their content, and that nothing in a name gets out of its
attribute."""

from __future__ import annotations

from gonogo_dashboards.matrix.cells import Cells
from gonogo_dashboards.matrix.matrix_page import MatrixCell

EVIL = """"><img src=x onerror=alert('1')>&"""


def cell(verdict: str, *, hollow: bool = False, lost: int = 0, name: str = "b1") -> MatrixCell:
    return MatrixCell(
        verdict, hollow, lost, 4, (), f"{verdict} on {name}", f"/tests/v1?branch=main&build={name}"
    )


def test_cells_are_numbered_and_drawn_once_for_each_look() -> None:
    drawn: list[str] = []

    def shape(verdict: str) -> str:
        drawn.append(verdict)
        return f"<svg data-of='{verdict}'/>"

    cells = Cells(shape)
    html = cells.row(
        [
            cell("pass"),
            None,
            cell("fail", hollow=True),
            cell("suspect", hollow=True),
            cell("pass", lost=1),
            cell("pass"),
        ],
        7,
    )
    assert [html.count(f'id="cell-7-{number}"') for number in range(1, 7)] == [1, 0, 1, 1, 1, 1]
    assert html.count("Not run") == 1
    assert [
        f'<td class="{look}">' in html
        for look in ("cell v-pass", "cell v-fail hollow", "cell v-pass partly")
    ] == [True, True, True]
    cells.row([cell("pass")], 8)
    assert drawn == [
        "pass",
        "fail",
        "pass_by_tolerance",
        "pass",
    ]  # hollow is unmistakable, unless there is worse


def test_nothing_in_a_name_gets_out_of_its_attribute() -> None:
    html = Cells(lambda verdict: "").row([cell(EVIL, name=EVIL)], 0)
    assert "<img" not in html
    assert html.count('"') == 2 * 5  # class, id, tabindex, href, title
