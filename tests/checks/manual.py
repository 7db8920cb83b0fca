"""Build the manual: `python -m tests.checks.manual` makes a site of docs/ for the service to show.

A link that leads nowhere, a page in no list and any other of Sphinx's warnings fail the build. The
service's Content-Security-Policy allows no inline scripts and styles, so these become files.
"""

from __future__ import annotations

import re
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
SITE = ROOT / "dashboards" / "gonogo_dashboards" / "manual"
_INLINE = re.compile(r"<(?P<tag>script|style)>(?P<text>.*?)</(?P=tag)>", re.DOTALL)
_STYLED = re.compile(r' style="(?P<text>[^"]*)"')


def main() -> int:
    """Build the site; return Sphinx's exit code."""
    with tempfile.TemporaryDirectory(prefix="gonogo-manual-") as doctrees:
        options = ["--quiet", "--fail-on-warning", "--keep-going", "-b", "dirhtml"]
        code = build_main([*options, "-d", doctrees, str(ROOT / "docs"), str(SITE)])
    for page in SITE.rglob("*.html"):
        page.write_text(without_inline(page.read_text(), page))
    return code


def without_inline(html: str, page: Path) -> str:
    """Return a page whose inline scripts and styles are files of the site."""
    top = "../" * (len(page.relative_to(SITE).parts) - 1)

    def moved(text: str, kind: str) -> str:
        name = f"inline-{sha256(text.encode()).hexdigest()[:12]}.{kind}"
        (SITE / "_static" / name).write_text(text)
        return f"{top}_static/{name}"

    def as_file(match: re.Match[str]) -> str:
        if match["tag"] == "script":
            return f'<script src="{moved(match["text"], "js")}"></script>'
        return f'<link rel="stylesheet" href="{moved(match["text"], "css")}">'

    def as_attribute(match: re.Match[str]) -> str:
        rules[match["text"]] = f"inline-{sha256(match['text'].encode()).hexdigest()[:8]}"
        return f' data-style="{rules[match["text"]]}"'

    rules: dict[str, str] = {}
    html = _STYLED.sub(as_attribute, _INLINE.sub(as_file, html))
    sheet = "\n".join(f'[data-style="{name}"] {{ {text} }}' for text, name in rules.items())
    if sheet:
        html = html.replace(
            "</head>", f'<link rel="stylesheet" href="{moved(sheet, "css")}"></head>', 1
        )
    return html


if __name__ == "__main__":
    sys.exit(main())
