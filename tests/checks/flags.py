"""Write the table of kinds of flags in docs/flakiness.md from that of the program.

`python -m tests.checks.flags` writes it; a test compares the page with the table.
"""

from __future__ import annotations

import re
from pathlib import Path

from gonogo.flakiness.flag_kinds import FlagKind

PAGE = Path(__file__).parents[2] / "docs" / "flakiness.md"
HEAD = "| kind | opens, or is renewed, when a job ends and |\n|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"(\|.*\n)+")


def page() -> str:
    """Return the page with the table of this moment."""
    rows = "".join(f"| `{kind}` ({kind.label}) | {kind.opens} |\n" for kind in FlagKind)
    return _TABLE.sub(lambda _: HEAD + rows, PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
