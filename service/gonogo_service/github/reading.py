"""What is to be told of a commit_check, read from the database at the moment of telling."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.errors import FieldError
from gonogo.flakiness.classes import Class
from gonogo_service.github import report
from gonogo_service.github.report import Links, Report
from gonogo_storage.automation import commit_checks, runs
from gonogo_storage.automation.commit_checks import CommitCheck
from gonogo_storage.comparison import comparing
from gonogo_storage.comparison.comparing import Comparison
from gonogo_storage.db.states import JobState
from gonogo_storage.gauges import gauges
from gonogo_storage.jobs import jobs

MOST_DIAGNOSED = 20
NO_BASE = "no base"
"""Names a build that never ran: what is bad on head is unknown then."""


def read(session: Session, commit_check: CommitCheck, base_url: str | None) -> Report:
    """What is to be told now: that it runs, that it can't, or what came of it."""
    page = _pages(base_url)
    if commit_check.suite is None and commit_check.gauges:
        return _gauges(session, commit_check, page)
    if commit_check.run_id is None:
        return report.broken(commit_check, commit_check.error or "the rule named nothing to run")
    run_url = page(urls.run(commit_check.run_id))
    for run_id in (commit_check.run_id, commit_check.base_run_id):
        found = None if run_id is None else runs.get(session, run_id)
        if found is not None and not found[0].state.final:
            return report.running(
                commit_check,
                run_url,
                f"{found[0].job_count} tests" if run_id == commit_check.run_id else "base",
            )
    base, head = _base(commit_check), _side(commit_check.head_build, commit_check.run_id)
    try:
        comparison = comparing.compare(session, base, head)
    except FieldError as problem:
        return report.broken(commit_check, f"head and base can't be compared: {problem}")
    compare_url = page(urls.compare(base, head)) if base != NO_BASE else None
    links = Links(run_url, compare_url, lambda job: page(urls.job(job)))
    return report.compared(commit_check, comparison, links, _diagnoses(session, comparison))


def comment(session: Session, commit_check: CommitCheck, base_url: str | None) -> list[Report]:
    """The sections of the pull request's comment: each suite of its newest commit. None of them
    where that is another commit by now.
    """
    if commit_check.pull_request is None:
        return []
    newest = commit_checks.newest_of(session, commit_check.repository, commit_check.pull_request)
    if not newest or newest[0].head_sha != commit_check.head_sha:
        return []
    return [read(session, each, base_url) for each in newest]


def _gauges(
    session: Session, commit_check: CommitCheck, page: Callable[[str], str | None]
) -> Report:
    found = [
        each
        for each in (gauges.get(session, gauge_id) for gauge_id in commit_check.gauges)
        if each is not None
    ]
    if any(not JobState(each["state"]).final for each in found):
        return report.running(commit_check, None, f"{len(found)} gauges")
    return report.gauged(commit_check, found, lambda gauge_id: page(urls.gauge(gauge_id)))


def _base(commit_check: CommitCheck) -> str:
    if commit_check.base_run_id is not None:
        return _side(commit_check.base_build, commit_check.base_run_id)
    return commit_check.base_build or NO_BASE


def _side(build: str | None, run_id: str) -> str:
    return run_id if build is None else f"{build}@{run_id}"


def _diagnoses(session: Session, found: Comparison) -> dict[str, str]:
    """Job -> what its numbers show, of the tests about which people want to know most."""
    said: dict[str, str] = {}
    for each in found.of(Class.new_failure, Class.new_hollow_pass, Class.unknown)[:MOST_DIAGNOSED]:
        for job_id in each.head.jobs[:1] if each.head is not None else ():
            job = jobs.get(session, job_id)
            if job is not None and job.diagnosis and job.diagnosis.get("words"):
                said[job_id] = str(job.diagnosis["words"])
    return said


def _pages(base_url: str | None) -> Callable[[str], str | None]:
    """A page's address under the service's own, None where that is not known."""
    own = (base_url or "").rstrip("/")
    return lambda path: own + path if own else None
