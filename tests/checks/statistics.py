"""Write docs/statistics.md, the statistics of an output, from the table of the program.

`python -m tests.checks.statistics` writes it; a test compares the page with the table.
"""

from __future__ import annotations

from pathlib import Path

from gonogo.spec.statistics import STATISTICS

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
HEAD = """# The statistics of an output

You need nothing to read this page; [verdicts](verdicts.md) says how the numbers decide.

A result has these numbers for each output (`outputs.NAME` in JSON, columns in CSV and Parquet). The
error e is the output minus the reference: the **raw** one is that of the data before they are
rounded to the input formats, the **quantized** one that of the values that the kernel received.
**replay** means the values of the [arithmetic](verdicts.md#the-arithmetic). A null statistic is
undefined or infinite; `nonfinite_statistics` names the infinite ones. 0/0 counts as 0.
"""


def page() -> str:
    """Return the page, as the table of this moment makes it."""
    rows = ["| name | reference | unit | meaning |", "|---|---|---|---|"]
    for row in STATISTICS.values():
        sentence = row.sentence.replace("[below](#", "[verdicts](#").replace(
            "](#", "](verdicts.md#"
        )
        rows.append(f"| `{row.name}` | {row.reference} | {row.unit} | {sentence} |")
    return "\n".join((HEAD, *rows)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
