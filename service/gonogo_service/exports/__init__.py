"""Exports: the results of a job or a run as JUnit, CTRF, CSV, NDJSON and Parquet.

Files are written while the results are read, in constant memory.

parts.py      the exported data: one job after the other, each with its rows
test_case.py  a seed or a test as one test case of a report, with a status
tables.py     one record per output: CSV, NDJSON, the columns of Parquet
junit.py  ctrf.py  parquet.py
forms.py      the formats by name
"""
