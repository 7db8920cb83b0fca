"""Runs selections without a server (`gonogo check`).

One build's tests run in a kernel host and are judged as a worker judges them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gonogo.settings
from gonogo.spec.selections import Selection
from gonogo_workers.attempts.report_pipeline import judge_iteration, read_dumps
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.base import KernelCrash, KernelError, KernelHang, duration_of
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.local.child import LocalChild
from gonogo_workers.local.patience import Patience
from gonogo_workers.messages.rows import Place, Row, failed
from gonogo_workers.reports.exchange import read_reports, request
from gonogo_workers.reports.rows import LOST

HERE = "local"


class LocalReporter(LocalChild):
    """Runs iterations of selections of one build."""

    def __init__(self, resolved: ResolvedBuild, build: str, *, patience: Patience) -> None:
        super().__init__(resolved, build)
        self.patience = patience
        self._max_elements = gonogo.settings.load().max_elements
        self._open()

    def run(self, selection: Selection, iteration: int, repeat: int = 0) -> Row:
        """Run one iteration; return its row.

        A failure of the tests becomes the row's verdict. After a crash or a hang the next iteration
        gets a fresh child. Raises HostUnavailable when none can be started.
        """
        host = self._host or self._open()
        place = Place(HERE, host.host_run, self._position)
        file = host.folder / f"reports-{iteration}-{repeat}.json"
        limit_s = self.patience.limit_s(
            self.resolved.executor.name, None, is_first=not self._position
        )
        self._position += 1
        start = time.perf_counter()
        try:
            host.submit(request(selection, iteration, file, limit_s))
            with self.patience.telling(f"iteration {iteration} of build {self.build}", limit_s):
                answer = host.receive(time.monotonic() + limit_s)
            reports = read_reports(file)
        except (KernelHang, KernelCrash) as problem:
            self.close(kill=True)
            spent = (time.perf_counter() - start) * 1e3
            return failed((iteration, repeat), place, spent, problem.verdict, str(problem))
        except KernelError as problem:
            return failed((iteration, repeat), place, None, problem.verdict, str(problem))
        duration = duration_of(answer)
        arrays = read_dumps(reports, self._max_elements)
        if any(report.outcome in LOST for report in reports):
            self.close(kill=True)
        row, _ = judge_iteration(
            (iteration, repeat), place, duration, reports, arrays, self.resolved.arithmetic
        )
        return row


def reporter(
    executor: str,
    build: str,
    *,
    deadline_s: float | None,
    tell: Callable[[str], None],
) -> LocalReporter:
    """Return a reporter for this executor and build; `tell` as for a runner.

    Raises FieldError for an unknown executor, ExecutorFailure when the build can't be opened.
    """
    config = gonogo.settings.load()
    spec = registry.find(executor)
    resolved = builds_file.resolve_build(spec, build, builds_file.read(config.builds))
    patience = Patience(deadline_s, config.per_seed_deadline_s, tell)
    return LocalReporter(resolved, build, patience=patience)
