"""The wheel: what is in it, and that it runs, installed into an environment that doesn't know this
checkout, from another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from checkout import HOMES, ROOT
from patience import WAIT_S

PACKAGES = tuple(HOMES)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
WORDS = "check --kernel layernorm_bw --shape 1,1,32,96 --rtol 1e-3 --atol 0.5 --seeds 2 --json"
CHECK = tuple(WORDS.split())
HOLLOW = 1
"""The exit code of a command that ran and found something."""


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    """Return the output of a command, which sees no GONOGO_ or PYTHON variable."""
    hidden = [name for name in os.environ if name.startswith(("GONOGO_", "PYTHON"))]
    environment = {name: os.environ[name] for name in os.environ.keys() - hidden}
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(words, cwd=cwd, env=environment, timeout=10 * WAIT_S, **options)
    assert done.returncode == code, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build_wheel(source: Path, folder: Path) -> Path:
    """Build a wheel of a checkout or an sdist into `folder`, without the network."""
    options = ("--no-index", "--no-deps", "--no-build-isolation")
    folder.mkdir()
    run(*PIP, "wheel", "--quiet", *options, "--wheel-dir", folder, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this checkout."""
    if util.find_spec("hatchling") is None:
        pytest.skip("hatchling: not installed")
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel") / "built")


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a fresh environment and return its folder of programs.

    Other packages are borrowed from the environment at hand, by a .pth file. A folder named there
    is searched, but its own .pth files are not read: an editable install of this checkout stays
    out.
    """
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    options = ("--no-compile", "--quiet", "--no-index", "--no-deps")
    run(*PIP, "--python", programs / "python", "install", *options, wheel, cwd=folder)
    look = "import sysconfig; print(sysconfig.get_path('purelib'))"
    purelib = Path(run(programs / "python", "-c", look, cwd=folder).strip())
    borrowed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (purelib / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return programs


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel installed, for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("installed") / "environment"
    install(wheel, folder)
    return folder


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("gonogo_dashboards/static/manifest.json"))
        (entries,) = (name for name in names if name.endswith("dist-info/entry_points.txt"))
        points = archive.read(entries).decode()
    assert "gonogo = gonogo.cli.app:main" in points
    assert "gonogo.pytest_plugin.plugin = gonogo.pytest_plugin.plugin" in points
    for package, home in HOMES.items():
        for pattern in ("*.py", "*.html", "*.cpp"):
            files = (home / package).rglob(pattern)
            assert {path.relative_to(home).as_posix() for path in files} <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]
    # the scripts' sources: the wheel has what is built from them
    assert not [name for name in names if "dashboards/web/" in name]
    assert [name for name in names if name.startswith("gonogo_migrations/versions/")]
    assert "gonogo_migrations/env.py" in names
    assert "gonogo_workers/include/gonogo_dump.hpp" in names
    manual = "gonogo_dashboards/manual/index.html"  # `make release` builds it first
    assert (manual in names) == (ROOT / "dashboards" / manual).is_file()
    chunks = {
        f"gonogo_dashboards/static/{file}"
        for chunk in manifest.values()
        for file in (chunk["file"], *chunk.get("css", ()))
    }
    assert chunks
    assert chunks <= names


def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    hatchling = (sys.executable, "-m", "hatchling", "build", "--target", "sdist")
    run(*hatchling, "--directory", tmp_path / "sdist", cwd=ROOT)
    (sdist,) = (tmp_path / "sdist").glob("*.tar.gz")
    again = build_wheel(sdist, tmp_path / "again")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert set(one.namelist()) == set(other.namelist())


NEIGHBORS = {
    "workers/__init__.py": "",
    "workers/pool.py": "SIZE = 3\n",
    "service/__init__.py": "NAME = 'theirs'\n",
    "settings/__init__.py": "LEVEL = 'debug'\n",
    "cli/__init__.py": "from workers.pool import SIZE\n",
    "tests/test_neighbors.py": """
import cli
import gonogo
import numpy as np
import service
import settings
from workers import pool


def test_the_folders_are_those_of_this_repository():
    assert (cli.SIZE, pool.SIZE, service.NAME, settings.LEVEL) == (3, 3, "theirs", "debug")


def test_gonogo_is_beside_them():
    x = np.ones((4, 8), np.float32)
    gonogo.compare(x, x, rtol=1e-5, atol=1e-6)
""",
}
"""A repository whose own folders have the names that GoNoGo's top-level folders have."""


def test_the_wheel_stays_out_of_the_way_of_a_repository_s_own_folders(
    environment: Path, tmp_path: Path
) -> None:
    programs = environment / "bin"
    repository = tmp_path / "repository"
    for name, text in NEIGHBORS.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    # installed as `pip install -e` does it: found behind what stands in the environment itself
    (purelib,) = environment.glob("lib/python*/site-packages")
    neighbors = purelib / "zz_neighbors.pth"
    neighbors.write_text(f"{repository}\n")
    try:
        options = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib")
        pytest_run = (programs / "python", "-P", "-m", "pytest", *options, repository / "tests")
        assert "2 passed" in run(*pytest_run, cwd=tmp_path)
        checked = run(programs / "gonogo", *CHECK, "--build", "correct", cwd=repository)
        assert json.loads(checked)["verdict"] == "pass"
    finally:
        neighbors.unlink()


def test_the_installed_wheel_runs_a_check_and_the_demo_from_another_folder(
    environment: Path, tmp_path: Path
) -> None:
    programs = environment / "bin"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    names = ", ".join(PACKAGES)
    paths = f"[sys.path, *(package.__path__[0] for package in ({names}))]"
    look = f"import sys, json, {names}; print(json.dumps({paths}))"
    searched, *places = json.loads(run(programs / "python", "-c", look, cwd=elsewhere))
    assert str(ROOT) not in searched
    assert all(Path(place).is_relative_to(environment) for place in places), places

    # a right kernel is checked above, beside folders of the same names
    words = (*CHECK, "--build", "tt-train-2025")
    wrong = json.loads(run(programs / "gonogo", *words, cwd=elsewhere, code=HOLLOW))
    assert wrong["verdict"] == "pass_by_tolerance"
    assert wrong["diagnosis"]["words"]

    words = ("demo", "--exit", "--seeds", "1", "--json")
    demo = json.loads(run(programs / "gonogo", *words, cwd=elsewhere))
    assert {row["build"]: (row["green"], row["verdict"]) for row in demo["rows"]} == {
        "correct": (1, "pass"),
        "tt-train-2025": (1, "pass_by_tolerance"),
    }
    assert not (elsewhere / "var/up.json").exists()  # it has stopped what it started
