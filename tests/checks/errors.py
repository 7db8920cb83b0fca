"""Write docs/errors.md, the types of problem documents, from the service's table.

`python -m tests.checks.errors` writes it; a test compares page and table, and the table with the
code that raises problems.
"""

from __future__ import annotations

from pathlib import Path

from gonogo_service.kit.problem_types import PROBLEM_TYPES
from gonogo_service.kit.problems import TYPE_PREFIX

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
HEAD = f"""# Errors

You need nothing to read this page; [HTTP by example](http.md) has an example.

An error of the API is a problem document (RFC 9457) with the media type
`application/problem+json`: `type`, `title`, `status`, `detail`, and where a field is wrong `field`,
`value`, `limit` and `errors`. With `--json`, the command's errors have the same form, with
`exit_code`.

`type` is `{TYPE_PREFIX}` and one of these names. Programs may rely on it; `detail` is for people.
"""


def page() -> str:
    """Return the page, as the table of this moment makes it."""
    rows = ["| type | status | when |", "|---|---|---|"]
    for name, row in PROBLEM_TYPES.items():
        statuses = ", ".join(map(str, row.statuses)) or "of the command alone"
        rows.append(f"| `{name}` | {statuses} | {row.sentence} |")
    return "\n".join((HEAD, *rows)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
