"""Shared by the API, the pages, and the background process.

Problem documents, answers, logs, metrics, live events.
"""
