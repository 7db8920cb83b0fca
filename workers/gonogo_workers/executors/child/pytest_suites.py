"""The suites of a pytest build, as its builds file has them. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from child_reports import check_known, seconds, texts

SUITE_FIELDS = ("root", "paths", "filter", "stages", "timeout_s")
STAGE_FIELDS = ("name", "files", "requires", "timeout_s")


@dataclass(frozen=True)
class Stage:
    """One stage: its tests, and the files that must exist when they have run.

    Paths are relative to the suite's root.
    """

    number: int
    name: str
    files: tuple[str, ...]
    requires: tuple[str, ...]
    timeout_s: float | None


@dataclass(frozen=True)
class Suite:
    """The tests that one suite name in a job's selection stands for."""

    name: str
    root: Path
    paths: tuple[str, ...]
    filters: tuple[str, ...]
    stages: tuple[Stage, ...]
    timeout_s: float | None

    def stages_up_to(self, names: Any) -> tuple[Stage, ...]:
        """Return the stages up to the last of those named; all without names. Raises ValueError.

        A later stage runs the earlier ones again.
        """
        known = [stage.name for stage in self.stages]
        for name in names or ():
            if name not in known:
                raise ValueError(
                    f"the suite {self.name!r} has no stage {name!r}; it has: {', '.join(known)}"
                )
        return self.stages[: 1 + max(map(known.index, names))] if names else self.stages


def suites(
    build: str, options: Mapping[str, Any], tables: Mapping[str, Any]
) -> dict[str | None, Suite]:
    """Return the build's suites by name.

    None is the suite of a job that names none: `options.paths`, else everything below the root.
    Raises ValueError with the wrong entry of the builds file.
    """
    by_name: dict[str | None, Suite] = {
        name: _suite(f"builds.{build}.suites.{name}", name, table, options)
        for name, table in tables.items()
    }
    if "root" in options:
        by_name[None] = _suite(
            f"builds.{build}.options", "", {"paths": options.get("paths", ["."])}, options
        )
    return by_name


def _suite(place: str, name: str, table: Mapping[str, Any], options: Mapping[str, Any]) -> Suite:
    check_known(place, table, SUITE_FIELDS)
    root = Path(table.get("root") or options.get("root") or "")
    if not root.is_absolute():
        raise ValueError(
            f"{place}.root (or the build's options.root) must be the absolute path of the folder "
            f"with the tests; got '{root}'"
        )
    root = root.resolve()
    if not root.is_dir():
        raise ValueError(f"{place}.root: there is no folder {root}")
    filters = table.get("filter", [])
    stages = tuple(
        _stage(f"{place}.stages.{number}", number, stage)
        for number, stage in enumerate(table.get("stages", []), 1)
    )
    if len({stage.name for stage in stages}) < len(stages):
        raise ValueError(f"{place}.stages: every stage needs a different name")
    paths = texts(f"{place}.paths", table.get("paths", [] if stages else ["."]))
    if stages and (paths or filters):
        raise ValueError(
            f"{place}: a staged suite has its files in the stages, and neither paths nor filter"
        )
    absolute = tuple(str(root) if path == "." else str(root / path) for path in paths)
    lines = (
        "\n".join(texts(f"{place}.filter", filters)) if isinstance(filters, list) else str(filters)
    )
    return Suite(name, root, absolute, (lines,) if lines else (), stages, seconds(place, table))


def _stage(place: str, number: int, table: Mapping[str, Any]) -> Stage:
    check_known(place, table, STAGE_FIELDS)
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{place}.name must be text; got {name!r}")
    files = texts(f"{place}.files", table.get("files", []))
    if not files:
        raise ValueError(f"{place}.files must name the stage's tests")
    return Stage(
        number,
        name,
        files,
        texts(f"{place}.requires", table.get("requires", [])),
        seconds(place, table),
    )
