"""The extras of the install: the locks have what each brings, and a command whose extra is missing
names the right one."""

from __future__ import annotations

import ast
import platform
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from checkout import HOMES, ROOT
from gonogo.cli.kit.extras import PACKAGES

TAG = f"py{sys.version_info.major}{sys.version_info.minor}"
FIRST_RELEASE = f"{sys.version_info.major}.{sys.version_info.minor}.0"
EXTRAS = ("", "worker", "service", "all", "parquet")
LOCKS = dict.fromkeys(EXTRAS, "run") | {"parquet": "dev"}
"""The smallest lock that has all of an extra."""
SMALLER = {"parquet": "", "worker": "", "service": "worker"}
"""An extra whose commands say that it is missing, and the install that they are missing in."""
BY_ADDRESS = {"psycopg"}
"""Modules that no line of ours imports: SQLAlchemy does, for an address of PostgreSQL."""


def pins(lock: str) -> dict[str, str]:
    """Return name -> version of a lock for this interpreter."""
    text = (ROOT / "locks" / f"{lock}-{TAG}.txt").read_text()
    lines = re.findall(r"^([\w.-]+)==([^ ]+)", text, re.M)
    return {canonicalize_name(name): version for name, version in lines}


@cache
def closure(extra: str) -> dict[str, tuple[Requirement, ...]]:
    """Return each distribution that `gonogo[extra]` installs here -> what is required of it."""
    required: dict[str, list[Requirement]] = {}
    open_ = [Requirement(f"gonogo[{extra}]" if extra else "gonogo")]
    seen: set[str] = set()
    while open_:
        requirement = open_.pop()
        name = canonicalize_name(requirement.name)
        if name != "gonogo":
            required.setdefault(name, []).append(requirement)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        for line in metadata.requires(name) or ():
            part = Requirement(line)
            if _applies(part, requirement.extras):
                open_.append(part)
    return {name: tuple(parts) for name, parts in required.items()}


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    """Return whether the first release of this Python, or this one, installs a requirement.

    The locks are for all releases of a Python, and are made with a new one.
    """
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({"extra": extra, "python_full_version": release})
        for extra in ("", *extras)
        for release in (FIRST_RELEASE, platform.python_version())
    )


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_lock_has_all_that_an_extra_installs(extra: str) -> None:
    locked = pins(LOCKS[extra])
    lacking = {
        f"{part} (locked: {locked.get(name)})"
        for name, parts in closure(extra).items()
        for part in parts
        if name not in locked or not part.specifier.contains(locked[name], prereleases=True)
    }
    assert lacking == set()
    assert set(closure("")) <= set(closure(extra))


@pytest.mark.parametrize("lock", ["run", "demo", "dev"])
def test_what_is_locked_installs_on_the_first_release_of_this_python(lock: str) -> None:
    """Distributions stay on an early release: Debian 12 has Python 3.11.2."""
    needs = {
        f"{name}=={version}": metadata.metadata(name).get("Requires-Python", "")
        for name, version in pins(lock).items()
        if is_installed(name)
    }
    assert len(needs) > 30
    refused = {
        pin: python
        for pin, python in needs.items()
        if not SpecifierSet(python).contains(FIRST_RELEASE)
    }
    assert refused == {}


def is_installed(name: str) -> bool:
    """Return whether a locked distribution is installed here: some are for other systems."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def imported() -> Iterator[str]:
    """Yield the names of the top-level modules that the shipped code imports."""
    for package, home in HOMES.items():
        for path in Path(home, package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from (name.name.partition(".")[0] for name in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0]


def test_a_command_names_the_extra_that_brings_what_it_lacks() -> None:
    """The table has every module that the code imports and that the smaller install lacks."""
    modules = {*imported(), *BY_ADDRESS}
    distributions = {
        module: {canonicalize_name(name) for name in names}
        for module, names in metadata.packages_distributions().items()
        if module in modules
    }
    for extra, smaller in SMALLER.items():
        more = closure(extra).keys() - closure(smaller).keys()
        brought = {module for module, names in distributions.items() if names & more}
        assert set(PACKAGES[extra]) == brought, extra
