"""Write docs/cli.md, the reference of the command line, from the program.

`python -m tests.checks.reference` writes it; a test compares the page with the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gonogo.cli.app import COMMANDS, load

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAD = """# Command line

You need the command `gonogo` ([install](install.md)). `gonogo COMMAND --help` shows the same.

Exit codes of every command: 0 success, 1 as bad as `--fail-on`, 2 wrong usage, 3 infrastructure
(no server, no database, no broker). An error is one line on stderr. `--json` prints one JSON
document on stdout; an error is then a [problem document](http.md).

Commands that talk to a server find it by `GONOGO_URL`, else by the file that `gonogo up` writes in
`./var`, and log in with `GONOGO_TOKEN`.
"""


def page() -> str:
    """Return the page, as the program of this moment makes it."""
    parts = [HEAD]
    panel = None
    for name, entry in COMMANDS.items():
        if entry.panel != panel:
            panel = entry.panel
            parts.append(f"## {panel}\n")
        parts.extend(_command(load(name), f"gonogo {name}", "###"))
    return "\n".join(parts)


def _command(command: Any, call: str, heading: str) -> Iterator[str]:
    """Yield the sections of a command, and of the commands below it."""
    yield f"{heading} `{call}`\n"
    yield _plain(command.help or "") + "\n"
    children = getattr(command, "commands", None)
    if children:
        for name, child in children.items():
            yield from _command(child, f"{call} {name}", heading + "#")
        return
    rows = [row for row in map(_row, command.params) if row]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) + "\n"


def _row(parameter: Any) -> str | None:
    """Return the table's row of an argument or an option; None for --help."""
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return None
    is_option = parameter.param_type_name == "option"
    name = parameter.metavar or parameter.name.upper()
    words = (*parameter.opts, *parameter.secondary_opts) if is_option else (name,)
    names = ", ".join(f"`{word}`" for word in words)
    text = _plain(getattr(parameter, "help", None) or "")
    default = parameter.default
    if isinstance(default, list):
        default = ", ".join(str(getattr(item, "value", item)) for item in default)
    if is_option and default not in (None, False, True, "", ()) and not callable(default):
        shown = getattr(default, "value", default)
        text = f"{text} Default: `{shown}`." if text else f"Default: `{shown}`."
    if parameter.required:
        text = f"{text} Required.".strip()
    return f"| {names} | {text} |"


def _plain(text: str) -> str:
    """Return a help text as one paragraph per paragraph, safe in a table."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\f", "").strip())
    joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return joined.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page())
