"""The software bill of materials of a release is that of the locks."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from checkout import ROOT
from patience import WAIT_S

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def test_a_release_builds_the_manual_before_the_wheel_that_holds_it() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "release"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    order = [
        planned.index(step) for step in ("-m tests.checks.manual", "-m hatchling", "manual/index")
    ]
    assert order == sorted(order)


def test_an_sbom_has_every_package_of_its_lock_with_version_and_hashes(tmp_path: Path) -> None:
    lock = "locks/run-py312.txt"
    subprocess.run(
        ["make", "sbom", f"DIST={tmp_path}", f"LOCKS={lock}"], cwd=ROOT, check=True, timeout=WAIT_S
    )
    content = json.loads((tmp_path / "gonogo-py312.cdx.json").read_text())
    assert content["metadata"]["component"]["name"] == "gonogo"
    assert {(part["name"], part["version"]) for part in content["components"]} == set(
        PINNED.findall((ROOT / lock).read_text())
    )
    assert all(part["externalReferences"][0]["hashes"] for part in content["components"])
