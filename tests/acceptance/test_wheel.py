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

import pytest

from running_service import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PACKAGES = (
    "gonogo",
    "gonogo_pytest",
    "storage",
    "workers",
    "service",
    "dashboards",
    "cli",
    "migrations",
    "settings",
)
CHECK = (
    "check",
    "--kernel",
    "layernorm_bw",
    "--shape",
    "1,1,32,96",
    "--rtol",
    "1e-3",
    "--atol",
    "0.5",
    "--seeds",
    "2",
    "--json",
)
HOLLOW = 1
"""The exit code of a command that ran and found something."""


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    """A command's standard output. It sees no GONOGO_ or PYTHON variable and must end with this
    exit code."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GONOGO_", "PYTHON", "NUMBA_"))
    }
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == code, (
        f"{words} exits with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel built from this checkout, without the network: the build's requirements are those of
    the environment at hand."""
    if util.find_spec("hatchling") is None:
        pytest.skip("hatchling: not installed")
    folder = tmp_path / "wheel"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    run(
        *pip,
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        ROOT,
        cwd=tmp_path,
    )
    (found,) = folder.glob("*.whl")
    return found


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel; its folder of programs. Other packages are borrowed from
    the environment at hand.

    They come by a .pth file: a folder named there is searched, but its own .pth files are not read,
    so that an editable install of this checkout stays out.
    """
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        programs / "python",
        "install",
        "--quiet",
    )
    run(*pip, "--no-index", "--no-deps", wheel, cwd=folder)
    purelib = Path(
        run(
            programs / "python",
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
            cwd=folder,
        ).strip()
    )
    borrowed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (purelib / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return programs


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("gonogo_dashboards/static/manifest.json"))
        points = archive.read(
            next(name for name in names if name.endswith("dist-info/entry_points.txt"))
        ).decode()
    assert "gonogo = gonogo_cli.app:main" in points
    assert "gonogo_pytest.plugin = gonogo_pytest.plugin" in points
    # all of the code: a package or a folder that the build leaves out is missing at the first use
    # only
    assert {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "node_modules" not in path.parts
    } <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]
    assert not [name for name in names if "dashboards/web/" in name], (
        "the scripts' sources: the wheel has what is built from them"
    )
    assert [name for name in names if name.startswith("gonogo_migrations/versions/")]
    assert "migrations/gonogo_migrations/env.py" in names
    kernels = ROOT / "workers/gonogo_workers/executors/child/kernels"
    assert {
        f"gonogo_workers/executors/child/kernels/{path.name}" for path in kernels.glob("*.cpp")
    } <= names
    assert {
        path.relative_to(ROOT / "dashboards").as_posix()
        for path in (ROOT / "dashboards/gonogo_dashboards").rglob("*.html")
    } <= names
    chunks = {
        f"gonogo_dashboards/static/{file}"
        for chunk in manifest.values()
        for file in (chunk["file"], *chunk.get("css", ()))
    }
    assert chunks
    assert chunks <= names


def test_the_installed_wheel_runs_a_check_and_the_demo_from_another_folder(
    wheel: Path, tmp_path: Path
) -> None:
    programs = install(wheel, tmp_path / "environment")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    names = ", ".join(PACKAGES)
    look = f"import sys, json, {names}; print(json.dumps([sys.path, *(each.__path__[0] for each in ({names}))]))"
    searched, *places = json.loads(run(programs / "python", "-c", look, cwd=elsewhere))
    assert str(ROOT) not in searched
    assert all(Path(place).is_relative_to(tmp_path / "environment") for place in places), places

    right = json.loads(run(programs / "gonogo", *CHECK, "--build", "correct", cwd=elsewhere))
    assert right["verdict"] == "pass"
    wrong = json.loads(
        run(programs / "gonogo", *CHECK, "--build", "tt-train-2025", cwd=elsewhere, code=HOLLOW)
    )
    assert wrong["verdict"] == "pass_by_tolerance"
    assert wrong["diagnosis"]["words"]

    demo = json.loads(
        run(programs / "gonogo", "demo", "--exit", "--seeds", "1", "--json", cwd=elsewhere)
    )
    assert {each["build"]: (each["green"], each["verdict"]) for each in demo["rows"]} == {
        "correct": (1, "pass"),
        "tt-train-2025": (1, "pass_by_tolerance"),
    }
    assert not (elsewhere / "var/up.json").exists()  # it has stopped what it started
