"""Every URL of the pages, and of the API where a page links to it.

They are paths only, so a page works under any host name.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

API = "/api/v1"
STATIC = "/static"
PAGE_LENGTH, MAX_LENGTH = 50, 200
"""The default and the largest `limit` of a list."""
OVERVIEW = "/"
JOBS = "/jobs"
TESTS = "/tests"
MATRIX = "/matrix"
FLAGS = "/flags"
CHANGE_FLAGS = f"{API}/flags:change"
DEVICES = "/devices"
RUNS = "/runs"
SCHEDULES = "/schedules"
COMPARE = "/compare"
COMPARE_API = f"{API}/compare"
LOGIN = "/login"
LOGOUT = "/logout"
DOCS = "/docs"
MANUAL = "/manual"
OPENAPI = f"{API}/openapi.json"
SUBMIT = f"{API}/jobs"
VALIDATE = f"{API}/jobs:validate"
NEW_JOB = "/jobs/new"
GAUGES = "/gauges"
MEASURE = f"{API}/gauges"
WEBHOOKS = "/webhooks"
ANSWERS = "/answers"
HOOKS = "/hooks"
RULES = "/rules"
WAIVERS = "/waivers"
BISECTIONS = "/bisections"
SEARCH = "/search"
INVITATIONS = f"{API}/invitations"
"""The one-time codes of hosts."""
WORSE = "/worse"
BADGES = "/badges"
"""Pictures for READMEs, which GONOGO_PUBLIC_BADGES makes public."""
NEW_GAUGE = "/gauges/new"
NEW_BISECTION = "/bisections/new"
NEW_WAIVER = "/waivers/new"
NEW_SCHEDULE = "/schedules/new"
NEW_WEBHOOK = "/webhooks/new"
NEW_RULE = "/rules/new"
IMPORTS = f"{API}/imports"
GITHUB_DELIVERIES = f"{API}/hooks/github"
"""The endpoint for GitHub's webhooks."""
CI_DELIVERIES = f"{API}/hooks/ci"
"""The endpoint for other CI systems' webhooks, signed as in Standard Webhooks."""


def overview(chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False) -> str:
    """Return the overview's URL; with `as_json`, that of its JSON version."""
    return ("/overview.json" if as_json else OVERVIEW) + _query(chosen or {})


def jobs(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the URL of the list of jobs; filters that are empty or None are left out."""
    return (f"{JOBS}.json" if as_json else JOBS) + _query({**(filters or {}), "cursor": cursor})


def job(
    job_id: str,
    *,
    output: str | None = None,
    seed: tuple[int, int] | None = None,
    tests: Mapping[str, object] | None = None,
    as_json: bool = False,
) -> str:
    """Return a job's page, for one of its outputs, with the details of a (seed, repeat).

    tests: the part of a selection's tests: {"search": text in their names, "after": a number}.
    """
    chosen = (
        {} if seed is None else {"seed": str(seed[0]), "repeat": str(seed[1]) if seed[1] else None}
    )
    return f"{JOBS}/{_part(job_id)}{'.json' if as_json else ''}" + _query(
        {"output": output, **chosen, **{name: str(v or "") for name, v in (tests or {}).items()}}
    )


def new_job(given: Mapping[str, str | None] | None = None, *, as_json: bool = False) -> str:
    """Return the form that submits a job.

    given: {"from": a job's id} or {"test": a test's key}, to prefill the form.
    """
    return (f"{NEW_JOB}.json" if as_json else NEW_JOB) + _query(given or {})


def form(path: str, given: Mapping[str, str | None]) -> str:
    """Return a form, such as NEW_GAUGE, filled with values."""
    return path + _query(given)


def gauges(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of gauges, such as those of one test: {"test": its key}."""
    return (f"{GAUGES}.json" if as_json else GAUGES) + _query({**(filters or {}), "cursor": cursor})


def gauge(
    gauge_id: str, chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False
) -> str:
    """Return a gauge's page, its curves of a comparator and an output."""
    return f"{GAUGES}/{_part(gauge_id)}{'.json' if as_json else ''}" + _query(chosen or {})


def cancel_gauge(gauge_id: str) -> str:
    """Return the endpoint that cancels a gauge (POST)."""
    return f"{MEASURE}/{_part(gauge_id)}:cancel"


def bisections(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of bisections, such as those of one test: {"test": its key}."""
    return (f"{BISECTIONS}.json" if as_json else BISECTIONS) + _query(
        {**(filters or {}), "cursor": cursor}
    )


def bisection(bisection_id: str, *, as_json: bool = False) -> str:
    """Return a bisection's page."""
    return f"{BISECTIONS}/{_part(bisection_id)}{'.json' if as_json else ''}"


def cancel_bisection(bisection_id: str) -> str:
    """Return the endpoint that cancels a bisection (POST)."""
    return f"{API}{bisection(bisection_id)}:cancel"


def bisection_events(bisection_id: str) -> str:
    """Return the stream of a bisection's events (SSE)."""
    return f"{API}{bisection(bisection_id)}/events"


def catalogue(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of tests."""
    return (f"{TESTS}.json" if as_json else TESTS) + _query({**(filters or {}), "cursor": cursor})


def matrix(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the matrix of tests and builds; filters that are empty or None are left out."""
    return (f"{MATRIX}.json" if as_json else MATRIX) + _query({**(filters or {}), "cursor": cursor})


def history(
    key: str, chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False
) -> str:
    """Return a test's page, for a variant (branch, arch, board), an output and a statistic."""
    return f"{TESTS}/{_part(key)}{'.json' if as_json else ''}" + _query(chosen or {})


def flags(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of flags; filters that are empty or None are left out.

    It lists the open ones unless `state` says otherwise ("any").
    """
    return (f"{FLAGS}.json" if as_json else FLAGS) + _query({**(filters or {}), "cursor": cursor})


def flag(flag_id: str, *, as_json: bool = False) -> str:
    """Return one flag with its evidence."""
    return f"{FLAGS}/{_part(flag_id)}{'.json' if as_json else ''}"


def change_flag(flag_id: str) -> str:
    """Return the endpoint that acknowledges, resolves or reopens a flag (PATCH)."""
    return f"{API}/flags/{_part(flag_id)}"


def waivers(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of waivers; filters that are empty or None are left out."""
    path = f"{WAIVERS}.json" if as_json else WAIVERS
    return path + _query({**(filters or {}), "cursor": cursor})


def end_waiver(waiver_id: str) -> str:
    """Return the endpoint that ends a waiver (DELETE)."""
    return f"{API}/waivers/{_part(waiver_id)}"


def schedule_api(schedule_id: str) -> str:
    """Return the endpoint of a schedule (GET, PATCH, DELETE)."""
    return f"{API}/schedules/{_part(schedule_id)}"


def rule_api(name: str) -> str:
    """Return the endpoint of a rule (GET, DELETE)."""
    return f"{API}/rules/{_part(name)}"


def test_api(key: str) -> str:
    """Return the API's view of a test: its grade, and its history over all builds."""
    return f"{API}/tests/{_part(key)}"


def of_test(key: str, what: str, chosen: Mapping[str, str | None] | None = None) -> str:
    """Return a part of the API's view of a test: "attribution", "changes" or "comparison"."""
    return f"{API}/tests/{_part(key)}/{what}" + _query(chosen or {})


def devices(chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False) -> str:
    """Return the list of devices; chosen: its time range, such as {"range": "7d"}."""
    return (f"{DEVICES}.json" if as_json else DEVICES) + _query(chosen or {})


def device(
    device_id: str, chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False
) -> str:
    """Return a device's page, with its history."""
    return f"{DEVICES}/{_part(device_id)}{'.json' if as_json else ''}" + _query(chosen or {})


def device_api(device_id: str) -> str:
    """Return the endpoint that drains, tests or repairs a device (PATCH)."""
    return f"{API}/devices/{_part(device_id)}"


def runs(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of runs; filters that are empty or None are left out."""
    return (f"{RUNS}.json" if as_json else RUNS) + _query({**(filters or {}), "cursor": cursor})


def run(run_id: str, *, as_json: bool = False) -> str:
    """Return a run's page: its tests, one verdict."""
    return f"{RUNS}/{_part(run_id)}{'.json' if as_json else ''}"


def cancel_run(run_id: str) -> str:
    """Return the endpoint that cancels every job of a run (POST)."""
    return f"{API}/runs/{_part(run_id)}:cancel"


def compare(
    base: str | None = None,
    head: str | None = None,
    *,
    limit: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the comparison of two builds or runs, test by test."""
    return (f"{COMPARE}.json" if as_json else COMPARE) + _query(
        {"base": base, "head": head, "limit": limit}
    )


def schedules(*, cursor: str | None = None, as_json: bool = False) -> str:
    """Return the list of schedules."""
    return (f"{SCHEDULES}.json" if as_json else SCHEDULES) + _query({"cursor": cursor})


def run_now(schedule_id: str) -> str:
    """Return the endpoint that submits a schedule's suite now (POST).

    The response has the run's id.
    """
    return f"{API}/schedules/{_part(schedule_id)}:run-now"


def webhooks(*, cursor: str | None = None, as_json: bool = False) -> str:
    """Return the list of subscriptions."""
    return (f"{WEBHOOKS}.json" if as_json else WEBHOOKS) + _query({"cursor": cursor})


def webhook(
    webhook_id: str,
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return a subscription's page: messages that were sent, wait or failed.

    filters: such as {"state": "failed"}.
    """
    return f"{WEBHOOKS}/{_part(webhook_id)}{'.json' if as_json else ''}" + _query(
        {**(filters or {}), "cursor": cursor}
    )


def webhook_delivery(webhook_id: str, delivery_id: str, *, as_json: bool = False) -> str:
    """Return one message with every attempt to deliver it."""
    suffix = ".json" if as_json else ""
    return f"{WEBHOOKS}/{_part(webhook_id)}/deliveries/{_part(delivery_id)}{suffix}"


def replay(webhook_id: str, delivery_id: str) -> str:
    """Return the endpoint that sends a message again (POST)."""
    return f"{API}/webhooks/{_part(webhook_id)}/deliveries/{_part(delivery_id)}:replay"


def test_webhook(webhook_id: str) -> str:
    """Return the endpoint that sends a test message (POST).

    The response has the delivery's id.
    """
    return f"{API}/webhooks/{_part(webhook_id)}:test"


def answers(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of answers to GitHub; filters: such as {"state": "failed"}."""
    return (f"{ANSWERS}.json" if as_json else ANSWERS) + _query(
        {**(filters or {}), "cursor": cursor}
    )


def answer_again(commit_check_id: str) -> str:
    """Return the endpoint that sends an answer to GitHub again, in its current state (POST)."""
    return f"{API}/github/answers/{_part(commit_check_id)}:again"


def hooks(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of incoming webhooks; filters that are empty or None are left out."""
    return (f"{HOOKS}.json" if as_json else HOOKS) + _query({**(filters or {}), "cursor": cursor})


def hook(incoming_id: str, *, as_json: bool = False) -> str:
    """Return an incoming webhook, and what resulted from it."""
    return f"{HOOKS}/{_part(incoming_id)}{'.json' if as_json else ''}"


def hook_api(incoming_id: str) -> str:
    """Return the API's view of an incoming webhook, with its whole payload."""
    return f"{API}/hooks/deliveries/{_part(incoming_id)}"


def replay_hook(incoming_id: str) -> str:
    """Return the endpoint that processes an incoming webhook again (POST)."""
    return f"{hook_api(incoming_id)}:replay"


def rules(*, cursor: str | None = None, as_json: bool = False) -> str:
    """Return the list of rules."""
    return (f"{RULES}.json" if as_json else RULES) + _query({"cursor": cursor})


def badge(key: str, chosen: Mapping[str, str | None] | None = None) -> str:
    """Return the badge of a test, for a variant (branch, arch, board)."""
    return f"{BADGES}/tests/{_part(key)}.svg" + _query(chosen or {})


def worse(chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False) -> str:
    """Return the page of what got worse: of a branch, since a day, until a day (2026-11-01)."""
    return (f"{WORSE}.json" if as_json else WORSE) + _query(chosen or {})


def search(text: str | None = None, *, as_json: bool = False) -> str:
    """Return the search for a text."""
    return (f"{SEARCH}.json" if as_json else SEARCH) + _query({"q": text})


def revoke_invitation(invitation_id: str) -> str:
    """Return the endpoint that revokes an invitation of a host (POST)."""
    return f"{INVITATIONS}/{invitation_id}:revoke"


def events(job_id: str) -> str:
    """Return the stream of a job's events (SSE)."""
    return f"{API}/jobs/{_part(job_id)}/events"


def cancel(job_id: str) -> str:
    """Return the endpoint that cancels a job (POST)."""
    return f"{API}/jobs/{_part(job_id)}:cancel"


def resubmit(job_id: str) -> str:
    """Return the endpoint that submits the same job again (POST); the response has the new id."""
    return f"{API}/jobs/{_part(job_id)}:resubmit"


FILES = ("csv", "ndjson", "junit", "ctrf")
"""The formats in which whole results are streamed."""


def results(job_id: str, form: str | None = None) -> str:
    """Return a job's results per seed, as JSON pages or streamed whole (FILES)."""
    return f"{API}/jobs/{_part(job_id)}/results" + _query({"format": form})


def run_results(run_id: str, form: str) -> str:
    """Return the results of all jobs of a run, streamed whole (FILES)."""
    return f"{API}/runs/{_part(run_id)}/results" + _query({"format": form})


def diagnosis(job_id: str) -> str:
    """Return a job's diagnosis as JSON."""
    return f"{API}/jobs/{_part(job_id)}/diagnosis"


def artifact(job_id: str, artifact_id: str) -> str:
    """Return one artifact."""
    return f"{API}/jobs/{_part(job_id)}/artifacts/{_part(artifact_id)}"


def static(name: str) -> str:
    """Return a built asset, by its (hashed) file name."""
    return f"{STATIC}/{quote(name)}"


def _part(text: str) -> str:
    return quote(text, safe="")


def further(name: str, value: str) -> str:
    """Return a parameter to append to a URL that has a query already.

    It is for tables of URLs that differ in one parameter.
    """
    return f"&{urlencode({name: value})}"


def _query(values: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in values.items() if value}
    return f"?{urlencode(given)}" if given else ""
