"""Untrusted text in the Markdown of GitHub and GitLab.

It stays text, notifies nobody and closes nothing.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$>])")
_UNSEEN = "\u200b"


def text(words: str) -> str:
    """Return plain text in one line: no markup, no HTML, and no @name that would be notified."""
    line = " ".join(words.split())
    escaped = _SPECIAL.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))
    return escaped.replace("@", "@" + _UNSEEN)


def code(words: str) -> str:
    """Return text in one line as code, even if it contains backticks."""
    line = " ".join(words.split()) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(words: str, indent: str = "") -> str:
    """Return a block of shell code."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", words)), default=0))
    return "\n".join(indent + line for line in (f"{fence}sh", *words.splitlines(), fence))


def link(words: str, address: str | None) -> str:
    """Return plain text as a link, or only the text without an address."""
    return (
        text(words)
        if address is None
        else f"[{text(words)}]({address.replace('(', '%28').replace(')', '%29')})"
    )
