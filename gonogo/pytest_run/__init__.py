"""What a run of pytest recorded: numbers of every seed, gathered where tests run, told to a server or kept in an SQLite file.

gathering.py   in the process of the tests: comparisons into pytest's reports; strict mode
collecting.py  in the process that hears of all tests (the only one, or pytest-xdist's controller)
records.py     one test with one seed, as a line of format "gonogo" (docs/imports.md)
surroundings.py  what is known of the run: suite, build, commit
local.py       the SQLite file     server.py   POST /imports     summary.py   the words at the end

Standard library and gonogo only: it runs in the process of a user's tests (Python 3.10 or newer).
"""
