"""Exports: the results of a job or a run as JUnit, CTRF, CSV and NDJSON.

Files are written while the results are read, in constant memory.

parts.py      the exported data: one job after the other, each with its rows
test_case.py  a seed or a test as one test case of a report, with a status
tables.py     CSV and NDJSON
junit.py  ctrf.py
forms.py      the formats by name
"""
