"""Runs selections without a server (`gonogo check`), and judges them as a worker does."""

from __future__ import annotations

import time
from collections.abc import Callable

import gonogo.settings
from gonogo.spec.selections import Selection
from gonogo_workers.attempts.report_pipeline import Iteration
from gonogo_workers.executors.base import KernelCrash, KernelError, KernelHang, duration_of
from gonogo_workers.local.child import LocalChild, resolved_here
from gonogo_workers.messages.rows import Place, Row, failed
from gonogo_workers.reports.dumps import read_all
from gonogo_workers.reports.exchange import read_reports, request
from gonogo_workers.reports.rows import LOST

HERE = "local"


class LocalReporter(LocalChild):
    """Runs iterations of selections of one build."""

    def run(self, selection: Selection, iteration: int, repeat: int = 0) -> Row:
        """Run one iteration; return its row.

        A failure of the tests becomes the row's verdict. After a crash or a hang the next iteration
        gets a fresh child. Raises HostUnavailable when none can be started.
        """
        host = self._host or self._open()
        work, place = (iteration, repeat), Place(HERE, host.host_run, self.position)
        file = host.folder / f"reports-{iteration}-{repeat}.json"
        executor = self.resolved.executor.name
        limit_s = self.patience.limit_s(executor, None, is_first=not self.position)
        self.position += 1
        start = time.perf_counter()
        try:
            host.submit(request(selection, iteration, file, limit_s))
            with self.patience.telling(f"iteration {iteration} of build {self.build}", limit_s):
                answer = host.receive(time.monotonic() + limit_s)
            reports = read_reports(file)
        except (KernelHang, KernelCrash) as problem:
            self.close(kill=True)
            spent = (time.perf_counter() - start) * 1e3
            return failed(work, place, spent, problem.verdict, str(problem))
        except KernelError as problem:
            return failed(work, place, None, problem.verdict, str(problem))
        arrays = read_all(reports, gonogo.settings.load().max_elements)
        if any(report.outcome in LOST for report in reports):
            self.close(kill=True)
        ran = Iteration(work, place, duration_of(answer), reports, arrays)
        return ran.judged(self.resolved.arithmetic).row


def reporter(
    executor: str, build: str, *, deadline_s: float | None, tell: Callable[[str], None]
) -> LocalReporter:
    """Return a reporter for this executor and build; `tell` as for a runner.

    Raises FieldError for an unknown executor, ExecutorFailure when the build can't be opened.
    """
    resolved, patience = resolved_here(executor, build, deadline_s, tell)
    return LocalReporter(resolved, build, patience)
