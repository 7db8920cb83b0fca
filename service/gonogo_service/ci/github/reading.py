"""Reads the report of a commit check from the database at the time of sending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.errors import FieldError
from gonogo.flakiness.classes import Class
from gonogo_service.ci import commit_checks
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.ci.github import report
from gonogo_service.ci.github.report import Links, Report
from gonogo_service.compare import comparing
from gonogo_service.compare.comparing import Comparison
from gonogo_service.gauges import store as gauges
from gonogo_service.jobs import store as jobs
from gonogo_service.suites import runs

MAX_DIAGNOSED = 20
NO_BASE = "no base"
"""A build that never ran: failures on head are then unknown."""


def read(session: Session, commit_check: CommitCheck, base_url: str | None) -> Report:
    """Return the report as of now: running, not started, or finished."""
    page = _page_addresses(base_url)
    if commit_check.suite is None and commit_check.gauges:
        return _gauges(session, commit_check, page)
    if commit_check.run is None:
        return report.broken(commit_check, commit_check.error or "the rule named nothing to run")
    run_url = page(urls.run(commit_check.run))
    for run_id in (commit_check.run, commit_check.base_run):
        stored = None if run_id is None else runs.get(session, run_id)
        if stored is not None and not stored[0].state.final:
            return report.running(
                commit_check,
                run_url,
                f"{stored[0].jobs.total} tests" if run_id == commit_check.run else "base",
            )
    base, head = _base(commit_check), _side(commit_check.head_build, commit_check.run)
    try:
        comparison = comparing.compare(session, base, head)
        tests = comparing.with_checks(session, comparison, comparison.tests)
        comparison = replace(comparison, tests=tuple(tests))
    except FieldError as problem:
        return report.broken(commit_check, f"head and base can't be compared: {problem}")
    compare_url = page(urls.compare(base, head)) if base != NO_BASE else None
    links = Links(run_url, compare_url, lambda job: page(urls.job(job)))
    return report.compared(commit_check, comparison, links, _diagnoses(session, comparison))


def comment(session: Session, commit_check: CommitCheck, base_url: str | None) -> list[Report]:
    """Return the sections of the pull request's comment: one per suite of its newest commit.

    Returns nothing if the newest commit is a different one by now.
    """
    if commit_check.pull_request is None:
        return []
    newest = commit_checks.newest_of(session, commit_check.repository, commit_check.pull_request)
    if not newest or newest[0].head_sha != commit_check.head_sha:
        return []
    return [read(session, newer, base_url) for newer in newest]


def _gauges(
    session: Session, commit_check: CommitCheck, page: Callable[[str], str | None]
) -> Report:
    stored = [
        gauge
        for gauge in (gauges.get(session, gauge_id) for gauge_id in commit_check.gauges)
        if gauge is not None
    ]
    if any(not gauge.state.final for gauge in stored):
        return report.running(commit_check, None, f"{len(stored)} gauges")
    return report.gauged(commit_check, stored, lambda gauge_id: page(urls.gauge(gauge_id)))


def _base(commit_check: CommitCheck) -> str:
    if commit_check.base_run is not None:
        return _side(commit_check.base_build, commit_check.base_run)
    return commit_check.base_build or NO_BASE


def _side(build: str | None, run_id: str) -> str:
    return run_id if build is None else f"{build}@{run_id}"


def _diagnoses(session: Session, comparison: Comparison) -> dict[str, str]:
    """Return job -> diagnosis for the tests that matter most."""
    diagnoses: dict[str, str] = {}
    important = comparison.of(Class.new_failure, Class.new_hollow_pass, Class.unknown)
    for test in important[:MAX_DIAGNOSED]:
        for job_id in test.head.jobs[:1] if test.head is not None else ():
            job = jobs.get(session, job_id)
            if job is not None and job.diagnosis_words:
                diagnoses[job_id] = job.diagnosis_words
    return diagnoses


def _page_addresses(base_url: str | None) -> Callable[[str], str | None]:
    """Return the function from a path to its page's address; None where GONOGO_URL is not set."""
    root = (base_url or "").rstrip("/")
    return lambda path: root + path if root else None
