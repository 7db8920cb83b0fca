"""Plant small faults in an area, one at a time, and list those that its tests don't notice.

`python -m tests.checks.mutants [--count 60] [--seed 1] [AREA ...]`. mutmut makes and runs the
faults. It needs each package at the top of a folder, so this makes such a folder of links for each
area, in .mutants; the checkout itself stays as it is. Exits 1 where an area is below LEAST.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("gonogo", "service/gonogo_service", "workers/gonogo_workers"),
    *("dashboards/gonogo_dashboards", "migrations/gonogo_migrations"),
)
BESIDE = ("tests", "workers", "benchmarks", "examples", "docs", "README.md", "pyproject.toml")
"""Files and folders that the tests need beside the packages."""
NOTICED = ("killed", "timeout", "segfault", "caught by type check")
"""The outcomes of a fault that the tests notice. mutmut has others, such as "suspicious"."""
LEAST = 0.85
"""The share of an area's faults that its tests must notice."""


class Area(NamedTuple):
    """Modules in which faults are planted, and the tests that ought to notice."""

    modules: str
    tests: str
    marked: str = "not slow"
    """Which of the tests, by pytest's marks; most slow ones need a server."""


_JOB_TESTS = """
    tests/integration/api/test_api_jobs.py tests/integration/api/test_api_results.py
    tests/integration/api/test_api_sequential.py tests/integration/api/test_hostile_hosts.py
    tests/integration/background/test_flow_[!b]*.py tests/integration/background/test_reaper.py
    tests/integration/background/test_sequential_seeds.py
    tests/integration/dashboards/test_job_page_parts.py
    tests/integration/dashboards/test_truth_of_jobs.py tests/integration/storage/test_job_seeds.py
    tests/integration/storage/test_stages_reads.py tests/integration/storage/test_storage_jobs.py
"""
AREAS = {
    "judge": Area(
        "gonogo/judgment/*.py gonogo/judging/*.py",
        "tests/unit/domain/judgment tests/unit/domain/judging tests/unit/domain/public",
        marked="slow or not slow",
    ),
    "verdicts": Area(
        "gonogo/spec/verdicts.py",
        "tests/unit/domain/spec/test_verdicts.py tests/unit/domain/judging/test_judging.py",
    ),
    "closing": Area("gonogo_service/jobs/closing.py", _JOB_TESTS),
    "attempts": Area("gonogo_service/jobs/*attempts.py", _JOB_TESTS),
    "batches": Area("gonogo_service/jobs/batches.py gonogo_service/results/batch.py", _JOB_TESTS),
    "flags": Area(
        "gonogo_service/flags/*.py",
        """tests/integration/api/test_resources.py tests/integration/api/test_api_standing.py
        tests/integration/background/test_*flag*.py tests/integration/background/test_assessments.py
        tests/integration/background/test_suspect_seeds.py
        tests/integration/dashboards/test_overview_page.py
        tests/integration/dashboards/test_truth_of_lists.py
        tests/integration/storage/test_flag_*.py
        tests/integration/storage/test_stages_reads.py""",
    ),
    "auth": Area(
        """gonogo_service/people/auth.py gonogo_service/people/issuing.py
        gonogo_service/people/live_principals.py gonogo_service/people/failures.py
        gonogo_service/people/visit.py gonogo_service/kit/principals.py""",
        """tests/integration/api/test_api_bad_input.py tests/integration/api/test_auth_*.py
        tests/integration/api/test_hostile_hosts.py tests/integration/api/test_resources.py""",
    ),
    "hooks": Area(
        "gonogo_service/ci/*.py",
        """tests/integration/hooks/test_hook*.py tests/integration/hooks/test_github_answers.py
        tests/unit/service/test_github_*.py tests/unit/service/test_hook_signatures.py""",
    ),
    # not people.py: it runs in a process of its own, where mutmut sees nothing
    "webhooks": Area(
        "gonogo_service/webhooks/[!p]*.py",
        """tests/integration/hooks/test_webhooks.py tests/integration/hooks/test_webhook_*.py
        tests/unit/service/test_webhook_*.py tests/unit/service/test_hook_signatures.py
        tests/unit/cli/test_webhook_command.py""",
    ),
}


def folder_of(area: Area, folder: Path) -> list[Path]:
    """Make the folder that mutmut works in, with its configuration; return the area's modules.

    No fault is planted in a line with one text of three words or more: it is a sentence, whose
    words are no promise.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (*PACKAGES, *BESIDE):
        (folder / Path(name).name).symlink_to(ROOT / name)
    modules = files_of(area.modules, folder)
    settings = {
        "source_paths": [Path(name).name for name in PACKAGES],
        "only_mutate": [str(path.relative_to(folder)) for path in modules],
        "also_copy": list(BESIDE),
        "timeout_multiplier": ["5"],  # times the seconds that the tests take without a fault
        "pytest_add_cli_args": ["-m", area.marked, "-p", "no:xdist"],
        "pytest_add_cli_args_test_selection": [
            str(path.relative_to(folder)) for path in files_of(area.tests, folder)
        ],
        "do_not_mutate_patterns": ['^[^"]*"[^"]* [^"]* [^"]*"[^"]*$'],
        "use_setproctitle": ["false"],
    }
    lines = [f"{key} =\n    " + "\n    ".join([*values, ""]) for key, values in settings.items()]
    (folder / "setup.cfg").write_text("\n".join(["[mutmut]", *lines]))
    return modules


def files_of(globs: str, folder: Path) -> list[Path]:
    """Return the files that the globs name; exit where a glob names none."""
    paths = {glob: sorted(folder.glob(glob)) for glob in globs.split()}
    if missing := [glob for glob, some in paths.items() if not some]:
        sys.exit(f"{__file__} names files that are not there: {', '.join(missing)}")
    return [path for some in paths.values() for path in some]


def names_in(modules: list[Path], folder: Path) -> list[str]:
    """Return the names of all faults that mutmut makes in the modules."""
    return [
        get_mutant_name(module.relative_to(folder), name)
        for module in modules
        for name in mutate_file_contents(str(module), module.read_text()).mutant_names
    ]


def mutmut(folder: Path, *words: str) -> str:
    """Run mutmut in the folder; return what it printed, or exit with it."""
    command = [sys.executable, "-m", "mutmut", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\nmutmut {words[0]} failed in {folder}")
    return done.stdout


def share_noticed(name: str, count: int, seed: int) -> float:
    """Try a sample of an area's faults and print the unnoticed; return the share noticed."""
    folder = ROOT / ".mutants" / name
    modules = folder_of(AREAS[name], folder)
    os.chdir(folder)  # mutmut reads its configuration there
    names = names_in(modules, folder)
    sample = random.Random(seed).sample(names, min(count, len(names)))
    mutmut(folder, "run", "--max-children", "1", *sample)
    lines = mutmut(folder, "results", "--all", "true").splitlines()
    outcomes = dict(line.strip().split(": ") for line in lines)
    left = [fault for fault in sample if outcomes[fault] not in NOTICED]
    for fault in left:
        print(f"{outcomes[fault]}:", mutmut(folder, "show", fault))
    share = 1 - len(left) / len(sample)
    print(f"{name}: {share:.0%} of {len(sample)} noticed, of {len(names)} possible", flush=True)
    return share


def main() -> int:
    """Try each area; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(AREAS)}; all where none is named")
    parser.add_argument("--count", type=int, default=60, help="faults in each area")
    parser.add_argument("--seed", type=int, default=1, help="which faults")
    chosen = parser.parse_args()
    if unknown := set(chosen.areas) - AREAS.keys():
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    shares = [share_noticed(name, chosen.count, chosen.seed) for name in chosen.areas or AREAS]
    return 0 if min(shares) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
