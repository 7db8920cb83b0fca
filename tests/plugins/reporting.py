"""A plug-in that reports tests. The job's filter says how it behaves."""

import os
import signal
import time
from pathlib import Path


class Reporting:
    """An executor for selections only: it has no run()."""

    def __init__(self, build):
        if build == "refused":
            raise ValueError("no such build")
        self.build = build

    def report(self, selection, *, iteration, seed):
        """Return one report, or misbehave as the filter says."""
        words = selection.get("filter", "fine")
        print(f"iteration {iteration} of {words}", flush=True)
        if words.endswith("-sometimes"):
            words = words.removesuffix("-sometimes") if iteration == 1 else "fine"
        if words in ("hung", "hang") and os.environ.get("REPORT_WATCHER"):
            log = Path(os.environ["REPORT_WATCHER"]) / "watcher.log"
            log.write_text(
                "Device 0 worker core(x= 0,y= 0) virtual(x=18,y=18): CWFW,CRBW,   R,   R,   R  "
                "rmsg:D0G|BNT h_id:  1 smsg:GGGG "
                "k_ids:  4|  3|  5|  5|  5\nk_id[  3]: kernels/reader_ln.cpp\n"
                "k_id[  4]: kernels/writer_ln.cpp\nk_id[  5]: kernels/ln.cpp\n"
            )
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
        time.sleep(0.05)
        report = {
            "name": "A.B",
            "outcome": "passed",
            "seed": seed,
            "deadline": os.environ["GONOGO_PER_SEED_DEADLINE_S"],
        }
        if words == "lost":
            return [report, {"name": "A.C", "outcome": "crash", "message": "the device is gone"}]
        if words == "hung":
            return [report, {"name": "A.C", "outcome": "hang", "message": "no answer within 1 s"}]
        if words == "stolen":
            return [
                {
                    **report,
                    "dumps": [
                        {
                            "kernel": "layernorm_fw",
                            "fields": {"shape": [4]},
                            "tensors": {"x": "/etc/passwd"},
                        }
                    ],
                }
            ]
        if words == "many":
            return [{**report, "name": f"A.{number}"} for number in range(3000)]
        if words == "folder":
            return [{**report, "where": str(Path.cwd())}]
        return [report]
