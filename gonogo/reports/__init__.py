"""Reports of test runs that happened elsewhere, converted from files to one plain form.

The formats are JUnit XML, gtest, CTRF, and GoNoGo's own lines.

cases.py      the contents of a report: tests, their outcomes, and their numbers (own format only)
outcomes.py   a test's own outcome, and the verdict that its arrays give
red_hollow.py the red and the hollow among a job's seeds or tests, counted side by side
rows.py       from tests to the rows of a job
lines.py      format "gonogo"
junit.py, gtest.py, ctrf.py   the other formats
xml.py        XML that may be hostile
table.py      the other way: a job's results as the records of a table
reading.py    from bytes and the name of a format to a report
"""
