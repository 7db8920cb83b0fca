"""Exports of the results of a job or a run, written while they are read."""
