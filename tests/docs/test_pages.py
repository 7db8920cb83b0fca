"""Every fenced block of README and docs does what a reader expects of it: pages are pasted from top
to bottom, each in a fresh folder."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import gtest_programs
from patience import WAIT_S
from running_service import answers, clean_environment, until
from servers import Missing, free_port
from tests.docs.blocks import DATA, PAGES, RUNNABLE, SILENT, Block, read_blocks
from tests.docs.readers import READERS, documents
from tests.docs.terminal import Terminal, differences
from torch_interpreter import torch_python

PASTE_S = 3 * WAIT_S
TORCH = "/opt/torch/bin/python"
"""The interpreter with torch in the pages; the tests' own stands for it."""
NEEDED: dict[str, Callable[[], str]] = {"gtest": gtest_programs.compiler, "torch": torch_python}
"""By the attribute `needs`: a function that says what is missing here, and how to install it."""
MESSAGE = 3000
SCRIPTS = {"gonogo": "gonogo.cli", "pytest": "pytest", "pip": "pip"}
PARSERS: dict[str, Callable[[str], Any]] = {
    "json": lambda text: list(documents(text)),
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_pasted_from_top_to_bottom(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    blocks = read_blocks(page)
    work = tmp_path / "work"
    work.mkdir()
    environment = clean_environment(
        COLUMNS="150",
        HOME=str(tmp_path),
        PATH=f"{make_environment(tmp_path / 'environment')}:{os.environ['PATH']}",
        PIP_NO_BUILD_ISOLATION="false",  # pip's word for "no isolation"
        PIP_NO_INDEX="1",
    )
    if needs_server(page):
        server = request.getfixturevalue("server")
        environment["GONOGO_URL"] = server.url
        (work / "var").symlink_to(server.var)  # a reader pastes in the folder of `gonogo up`
        port = environment["GONOGO_URL"].rpartition(":")[2]
    else:
        port = str(free_port())
    environment["GONOGO_PORT"] = port
    left_out: str | None = None
    with Terminal(work, environment) as terminal:
        for block in blocks:
            text = block.text.replace("8717", port)
            try:
                if needed := block.attributes.get("needs"):
                    NEEDED[needed]()
                if TORCH in text:
                    text = text.replace(TORCH, torch_python())
            except (pytest.skip.Exception, Missing) as missing:
                left_out = str(missing)
                continue
            if block.skip is None:
                _follow(block, text, terminal, work, port)
    if left_out is not None:
        pytest.skip(left_out)


def make_environment(folder: Path) -> Path:
    """Make a newcomer's virtual environment; return its folder of programs, for PATH.

    It sees the packages of this interpreter; what is installed into it stays in it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    # addsitedir also reads the .pth files there, such as an editable install's
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    Path(packages, "parent.pth").write_text("\n".join(lines) + "\n")
    programs = folder / "bin"
    for name, module in SCRIPTS.items():
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n')
        script.chmod(0o755)
    return programs


def needs_server(page: Path) -> bool:
    """Return whether the page's line "You need" asks for a running server."""
    line = re.search(r"^You need .*?(?=\n\n)", page.read_text(), re.M | re.S)
    return line is not None and "`gonogo up`" in line[0]


def _follow(block: Block, text: str, terminal: Terminal, folder: Path, port: str) -> None:
    """Do with a block what a reader does."""
    if name := block.attributes.get("file"):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    if block.language in PARSERS:
        PARSERS[block.language](text)
    if "as" in block.attributes:
        READERS[block.attributes["as"]](text)
    elif "background" in block.attributes:
        terminal.start(text)
        until(
            lambda: answers(block.attributes["background"].replace("8717", port)), what=block.place
        )
    elif block.language == "sh":
        pasted = terminal.paste(text, PASTE_S)
        expected = (int(block.attributes["exit"]),) if "exit" in block.attributes else ()
        end = pasted.output[-MESSAGE:]
        assert pasted.failures[-1:] == expected, f"{block.place}\n{text}\n{end}"
    elif block.language == "console":
        _compare(block, text, terminal)
    elif block.language == "python" and not name:
        script = folder / "pasted.py"
        script.write_text(text)
        pasted = terminal.paste("python pasted.py", PASTE_S)
        assert not pasted.failures, f"{block.place}\n{pasted.output}"
    elif "output" in block.attributes:
        assert not (text_differs := differences(text, terminal.last.output)), (
            f"{block.place}\n{text_differs}\n\n{terminal.last.output}"
        )


def _compare(block: Block, text: str, terminal: Terminal) -> None:
    """Paste each `$ command` of a console and compare what it prints."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command += "\n" + more
        printed = terminal.paste(command, PASTE_S).output
        assert not (text_differs := differences(expected, printed)), (
            f"{block.place}\n$ {command}\n{text_differs}\n\n{printed}"
        )


def test_each_block_says_what_a_reader_does_with_it() -> None:
    """A block with no language, or data that nothing reads, would be shown and never tried."""
    silent = []
    for page in PAGES:
        for block in read_blocks(page):
            used = block.skip or block.attributes.keys() & {"file", "as"}
            known = RUNNABLE | DATA | SILENT
            if block.language not in known or (block.language in DATA and not used):
                silent.append(f"{block.place}: {block.language or 'no language'}")
    assert not silent, "\n".join(silent)


def test_what_could_be_run_is_not_only_shown() -> None:
    """A command in a `text` block isn't pasted, and the tests can start a server."""
    shown = [
        block.place
        for page in PAGES
        for block in read_blocks(page)
        if block.language == "text" and re.search(r"^\$ ", block.text, re.M)
    ]
    assert not shown, "make a `console` of it: " + ", ".join(shown)
    reasons = {block.place: block.skip for page in PAGES for block in read_blocks(page)}
    weak = [place for place, reason in reasons.items() if reason and "needs a server" in reason]
    assert not weak, 'say "`gonogo up`" in the line "You need": ' + ", ".join(weak)
