"""The fenced blocks of the documentation, as a reader meets them.

Attributes in a fence's first line say what a reader would do with the block:

    ```sh                                   paste it into a terminal; every command must succeed
    ```sh exit=1                            the block's last failing command ends with this status
    ```sh background=http://...          a second terminal until the page ends; wait for the server
    ```console                              paste each `$ command`; compare what it prints
    ```python                               run it; a following `text output` is what it prints
    ```yaml file=suite.yaml                 save it under this name
    ```json as=test                         read it as the thing that it shows (readers.py)
    ```cpp skip="needs a Wormhole"          not run, for this reason
    ```sh needs=torch                       run where an interpreter with torch is (or gtest)
    ```text                                 a picture or an address; nothing to run
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from checkout import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RUNNABLE = {"sh", "console", "python"}
SILENT = {"text", "{toctree}"}
"""Pictures, and lists of pages that Sphinx reads."""
DATA = {"json", "yaml", "toml", "cpp", "sql", "ini", "cmake"}
ATTRIBUTES = {"file", "skip", "as", "exit", "background", "output", "needs"}
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
    re.M | re.S,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is the number of its first line in the page."""

    page: Path
    line: int
    language: str
    attributes: dict[str, str]
    text: str

    @property
    def place(self) -> str:
        """Return where the block stands, for messages: `docs/spec.md:12`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def skip(self) -> str | None:
        """Return why the block is not run, or None."""
        return self.attributes.get("skip")


def read_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order.

    Raises ValueError for an attribute that nothing reads.
    """
    text = page.read_text()
    blocks = []
    for match in _FENCE.finditer(text):
        language, *words = shlex.split(match["info"]) or [""]
        attributes = dict(word.partition("=")[::2] for word in words)
        line = text.count("\n", 0, match.start()) + 1
        if unknown := attributes.keys() - ATTRIBUTES:
            raise ValueError(f"{page.name}:{line}: unknown attribute {sorted(unknown)}")
        blocks.append(Block(page, line, language, attributes, dedent(match["text"])))
    return blocks
