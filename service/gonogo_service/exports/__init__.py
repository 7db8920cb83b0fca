"""Files out: the results of a job or a run as JUnit, CTRF, CSV, NDJSON and Parquet, written as they
are read; memory stays flat.

parts.py      what is exported: a job after the other, each with its rows
shown.py      a seed or a test as one line of a report, with the status that such reports know
tables.py     one record per output: CSV, NDJSON, the columns of Parquet
junit.py  ctrf.py  parquet.py
forms.py      the formats by name
"""
