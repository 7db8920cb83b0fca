"""How pytest-xdist spreads the files of tests over its processes, where one of these ends."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class OnceScheduling(LoadFileScheduling):
    """`--dist loadfile` that runs no test twice.

    xdist itself gives a test whose process has ended (a timeout in compiled code, a signal) to the
    next process, which ends by it, too, and so on until xdist ends the run.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in whose middle the process has ended; the others of its file are left
        for another process."""
        files = self.assigned_work[node]
        ended = next(
            (
                (file, test)
                for file in files
                for test, is_done in files[file].items()
                if not is_done
            ),
            None,
        )
        if ended is None:
            return super().remove_node(node)
        file, test = ended
        files[file][test] = True
        # a file without tests that are left would never make its next process ask for more
        self.assigned_work[node] = {
            file: tests for file, tests in files.items() if not all(tests.values())
        }
        super().remove_node(node)
        return test
