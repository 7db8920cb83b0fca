"""Reports of test runs that happened elsewhere: files in (JUnit XML, gtest, CTRF, GoNoGo's own
lines) as one plain form.

cases.py      what a report holds: tests, their outcomes, and of our own format their numbers
outcomes.py   what a test says of itself, and the verdict that its arrays make of it
rows.py       from tests to the rows of a job
lines.py      format "gonogo"     junit.py, gtest.py, ctrf.py   the others     xml.py   XML that may
be hostile reading.py    from bytes and the name of a format to a report
"""
