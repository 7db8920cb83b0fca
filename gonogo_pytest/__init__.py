"""pytest in anybody's repository: what tests compare is recorded for every seed, and told to a
server, a file, or the worker that runs it.

plugin.py      the plug-in: options, fixtures, what is registered when
lines.py       a line in a file for each event, as the executor of a worker reads them     dumps.py
arrays on disk, for a worker gathering.py   in the process of the tests: comparisons into pytest's
reports; strict mode collecting.py  in the process that hears of all tests (the only one, or
pytest-xdist's controller) records.py     one test with one seed, as a line of format "gonogo"
(docs/imports.md) surroundings.py  what is known of the run: suite, build, commit spool.py
every run as it happens, on disk until it is delivered     delivery.py  and how it is, also after a
kill -9 local.py       the SQLite file     server.py   POST /imports     summary.py   the words at
the end

Standard library, pytest and gonogo only: it runs in the process of a user's tests (Python 3.10 or
newer). gonogo itself knows no files and no servers; the plug-in hangs itself on the hooks of
gonogo.public.recorded.
"""
