"""Text of others in GitHub's Markdown: it stays text, calls nobody and closes nothing."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$>])")
_UNSEEN = "\u200b"


def text(words: str) -> str:
    """Plain words in one line: no markup, no HTML, and no @name that would be notified."""
    line = " ".join(words.split())
    escaped = _SPECIAL.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))
    return escaped.replace("@", "@" + _UNSEEN)


def code(words: str) -> str:
    """Words in one line as code, whatever backticks they hold."""
    line = " ".join(words.split()) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(words: str, indent: str = "") -> str:
    """A block of shell code."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", words)), default=0))
    return "\n".join(indent + line for line in (f"{fence}sh", *words.splitlines(), fence))


def link(words: str, address: str | None) -> str:
    """Plain words that lead somewhere, or just the words."""
    return (
        text(words)
        if address is None
        else f"[{text(words)}]({address.replace('(', '%28').replace(')', '%29')})"
    )
