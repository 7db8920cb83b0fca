"""Every URL of the pages and of the API that a page links to, made in one place.

Paths only: a page works under any host name.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

API = "/api/v1"
STATIC = "/static"
PAGE_LENGTH, MOST_LENGTH = 50, 200
"""Of a list: `limit`, unless asked for, and at most."""
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
BISECTIONS = "/bisections"
IMPORTS = f"{API}/imports"
GITHUB_DELIVERIES = f"{API}/hooks/github"
"""Where GitHub posts its webhooks."""
CI_DELIVERIES = f"{API}/hooks/ci"
"""Where other CI systems post theirs, signed as Standard Webhooks says."""


def overview(*, as_json: bool = False) -> str:
    """Return the overview; with `as_json`, its JSON version."""
    return "/overview.json" if as_json else OVERVIEW


def jobs(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of jobs; filters that are empty or None are left out."""
    return (f"{JOBS}.json" if as_json else JOBS) + _query({**(filters or {}), "cursor": cursor})


def job(
    job_id: str,
    *,
    output: str | None = None,
    seed: tuple[int, int] | None = None,
    as_json: bool = False,
) -> str:
    """Return a job's page, for one of its outputs, with the details of a (seed, repeat)."""
    chosen = (
        {} if seed is None else {"seed": str(seed[0]), "repeat": str(seed[1]) if seed[1] else None}
    )
    return f"{JOBS}/{_part(job_id)}{'.json' if as_json else ''}" + _query({"output": output, **chosen})


def new_job(given: Mapping[str, str | None] | None = None, *, as_json: bool = False) -> str:
    """Return the form that submits a job; {"from": a job's id} or {"test": a test's key}: what it begins
    with.
    """
    return (f"{NEW_JOB}.json" if as_json else NEW_JOB) + _query(given or {})


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
    """POST: cancels a gauge."""
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
    """POST: cancels a bisection."""
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
    """Tests by builds; filters that are empty or None are left out."""
    return (f"{MATRIX}.json" if as_json else MATRIX) + _query({**(filters or {}), "cursor": cursor})


def history(key: str, chosen: Mapping[str, str | None] | None = None, *, as_json: bool = False) -> str:
    """Return a test's page, for one of its variants (line, arch, board), an output and a statistic."""
    return f"{TESTS}/{_part(key)}{'.json' if as_json else ''}" + _query(chosen or {})


def flags(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """Return the list of findings, the open ones unless `state` says otherwise ("any"); filters that are
    empty or None are left out.
    """
    return (f"{FLAGS}.json" if as_json else FLAGS) + _query({**(filters or {}), "cursor": cursor})


def flag(flag_id: str, *, as_json: bool = False) -> str:
    """Return one finding with its evidence."""
    return f"{FLAGS}/{_part(flag_id)}{'.json' if as_json else ''}"


def change_flag(flag_id: str) -> str:
    """PATCH: takes a finding on, closes it, says why."""
    return f"{API}/flags/{_part(flag_id)}"


def end_waiver(waiver_id: str) -> str:
    """DELETE: what was taken on is no longer."""
    return f"{API}/waivers/{_part(waiver_id)}"


def test_api(key: str) -> str:
    """What the API says of a test: its grade, and its history by all builds."""
    return f"{API}/tests/{_part(key)}"


def of_test(key: str, what: str, chosen: Mapping[str, str | None] | None = None) -> str:
    """What the API says of a test: "attribution", "changes", "comparison"."""
    return f"{API}/tests/{_part(key)}/{what}" + _query(chosen or {})


def devices(*, as_json: bool = False) -> str:
    """Return the list of devices."""
    return f"{DEVICES}.json" if as_json else DEVICES


def device(device_id: str, *, as_json: bool = False) -> str:
    """Return a device's page, with its history."""
    return f"{DEVICES}/{_part(device_id)}{'.json' if as_json else ''}"


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
    """POST: cancels every job of a run."""
    return f"{API}/runs/{_part(run_id)}:cancel"


def compare(
    base: str | None = None,
    head: str | None = None,
    *,
    limit: str | None = None,
    as_json: bool = False,
) -> str:
    """Return a build or a run against another, test by test."""
    return (f"{COMPARE}.json" if as_json else COMPARE) + _query(
        {"base": base, "head": head, "limit": limit}
    )


def schedules(*, cursor: str | None = None, as_json: bool = False) -> str:
    """Return the list of schedules."""
    return (f"{SCHEDULES}.json" if as_json else SCHEDULES) + _query({"cursor": cursor})


def run_now(schedule_id: str) -> str:
    """POST: submits a schedule's suite now; the answer has the run's id."""
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
    """Return a subscription's page: what was sent, what waits, what failed; such as {"state": "failed"}
    alone.
    """
    return f"{WEBHOOKS}/{_part(webhook_id)}{'.json' if as_json else ''}" + _query(
        {**(filters or {}), "cursor": cursor}
    )


def webhook_delivery(webhook_id: str, delivery_id: str, *, as_json: bool = False) -> str:
    """Return one message: what was sent, and every try."""
    return (
        f"{WEBHOOKS}/{_part(webhook_id)}/deliveries/{_part(delivery_id)}{'.json' if as_json else ''}"
    )


def replay(webhook_id: str, delivery_id: str) -> str:
    """POST: sends a message again."""
    return f"{API}/webhooks/{_part(webhook_id)}/deliveries/{_part(delivery_id)}:replay"


def test_webhook(webhook_id: str) -> str:
    """POST: sends a test message; the answer has the delivery's id."""
    return f"{API}/webhooks/{_part(webhook_id)}:test"


def answers(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """What GitHub was told; such as {"state": "failed"} alone."""
    return (f"{ANSWERS}.json" if as_json else ANSWERS) + _query({**(filters or {}), "cursor": cursor})


def answer_again(subject_id: str) -> str:
    """POST: tells GitHub again, whole and as it is now."""
    return f"{API}/github/answers/{_part(subject_id)}:again"


def hooks(
    filters: Mapping[str, str | None] | None = None,
    *,
    cursor: str | None = None,
    as_json: bool = False,
) -> str:
    """What came in from GitHub and other CI; filters that are empty or None are left out."""
    return (f"{HOOKS}.json" if as_json else HOOKS) + _query({**(filters or {}), "cursor": cursor})


def hook(incoming_id: str, *, as_json: bool = False) -> str:
    """Return a delivery that came in, and what was made of it."""
    return f"{HOOKS}/{_part(incoming_id)}{'.json' if as_json else ''}"


def hook_api(incoming_id: str) -> str:
    """Return the same by the API, with its whole payload."""
    return f"{API}/hooks/deliveries/{_part(incoming_id)}"


def replay_hook(incoming_id: str) -> str:
    """POST: works a delivery off once more."""
    return f"{hook_api(incoming_id)}:replay"


def rules(*, cursor: str | None = None, as_json: bool = False) -> str:
    """What starts what."""
    return (f"{RULES}.json" if as_json else RULES) + _query({"cursor": cursor})


def events(job_id: str) -> str:
    """Return the stream of a job's events (SSE)."""
    return f"{API}/jobs/{_part(job_id)}/events"


def cancel(job_id: str) -> str:
    """POST: cancels a job."""
    return f"{API}/jobs/{_part(job_id)}:cancel"


def resubmit(job_id: str) -> str:
    """POST: submits the same job again; the answer has the new id."""
    return f"{API}/jobs/{_part(job_id)}:resubmit"


FILES = ("csv", "ndjson", "parquet", "junit", "ctrf")
"""The formats in which results are streamed whole."""


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
    """What is put behind an address that has a query already; for tables of addresses that differ
    in one name.
    """
    return f"&{urlencode({name: value})}"


def _query(values: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in values.items() if value}
    return f"?{urlencode(given)}" if given else ""
