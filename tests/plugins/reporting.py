"""A plug-in that reports: what it does is said by the job's filter."""

import os
import signal
import time
from pathlib import Path


class Reporting:
    """Selections only: it has no run()."""

    def __init__(self, build):
        if build == "refused":
            raise ValueError("no such build")
        self.build = build

    def report(self, selection, *, iteration, seed):
        """One report, or what the filter says."""
        words = selection.get("filter", "fine")
        print(f"iteration {iteration} of {words}", flush=True)
        if words.endswith("-sometimes"):
            words = words.removesuffix("-sometimes") if iteration == 1 else "fine"
        if words == "hang":
            time.sleep(3600)
        if words == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if words == "raises":
            raise RuntimeError("the suite is broken")
        if words == "no-list":
            return {"name": "A.B"}
        if words == "no-json":
            return [{"name": "A.B", "outcome": object()}]
        if words == "no-report":
            return [{"outcome": "passed"}]
        if words == "nothing":
            return []
        told = {"name": "A.B", "outcome": "passed", "seed": seed, "deadline": os.environ["GONOGO_PER_SEED_DEADLINE_S"]}
        if words == "lost":
            return [told, {"name": "A.C", "outcome": "crash", "message": "the device is gone"}]
        if words == "stolen":
            return [{**told, "dumps": [{"kernel": "layernorm_fw", "fields": {"shape": [4]}, "tensors": {"x": "/etc/passwd"}}]}]
        if words == "many":
            return [{**told, "name": f"A.{number}"} for number in range(3000)]
        if words == "folder":
            return [{**told, "where": str(Path.cwd())}]
        return [told]
