"""The pytest plug-in for any repository: record every comparison for every seed, and report it.

It reports to a server, to a file in a folder, or to the worker that runs the tests.

plugin.py        the plug-in: options, fixtures, registration
lines.py         a line in a file for each event, which a worker's executor reads
dumps.py         arrays on disk, for a worker
exact.py         the fixture `exact_inputs`: inputs on which right kernels agree to the bit
capturing.py     --gonogo-capture: comparisons of suites that don't know GoNoGo
gathering.py     in the process of the tests: adds comparisons to pytest's reports; strict mode
collecting.py    in the process that receives all reports (the only one, or pytest-xdist's
                controller)
records.py       one test with one seed, as a line of format "gonogo" (docs/imports.md)
surroundings.py  facts about the run: suite, build, commit
spool.py         every run as it happens, on disk until it is delivered
delivery.py      the delivery of a run, also after a kill -9
server.py        POST /imports
together.py      what all seeds of a test say of suspect comparisons
summary.py       the summary at the end

It needs only the standard library, pytest and gonogo, because it runs in the process of a user's
tests (Python 3.10 or newer). gonogo itself uses no files and no servers; the plug-in registers with
the hooks of gonogo.public.recorded.
"""
