"""Every URL of the pages, and of the API where a page links to it.

They are paths only, so a page works under any host name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

Query = Mapping[str, str | None]
"""The query of a URL; what is empty or None is left out."""

API = "/api/v1"
STATIC = "/static"
PAGE_LENGTH, MAX_LENGTH = 50, 200
"""The default and the largest `limit` of a list."""
OVERVIEW = "/"
JOBS = "/jobs"
TESTS = "/tests"
MATRIX = "/matrix"
FLAGS = "/flags"
DEVICES = "/devices"
RUNS = "/runs"
SCHEDULES = "/schedules"
COMPARE = "/compare"
BRANCH = "/branch"
LOGIN = "/login"
LOGOUT = "/logout"
DOCS = "/docs"
MANUAL = "/manual"
GAUGES = "/gauges"
WEBHOOKS = "/webhooks"
ANSWERS = "/answers"
HOOKS = "/hooks"
RULES = "/rules"
WAIVERS = "/waivers"
TOLERANCES = "/tolerances"
BISECTIONS = "/bisections"
SEARCH = "/search"
WORSE = "/worse"
BADGES = "/badges"
"""Pictures for READMEs, which GONOGO_PUBLIC_BADGES makes public."""
NEW_JOB = "/jobs/new"
NEW_GAUGE = "/gauges/new"
NEW_BISECTION = "/bisections/new"
NEW_WAIVER = "/waivers/new"
NEW_SCHEDULE = "/schedules/new"
NEW_WEBHOOK = "/webhooks/new"
NEW_RULE = "/rules/new"
OPENAPI = f"{API}/openapi.json"
SUBMIT = f"{API}/jobs"
VALIDATE = f"{API}/jobs:validate"
CHANGE_FLAGS = f"{API}/flags:change"
COMPARE_API = f"{API}/compare"
IMPORTS = f"{API}/imports"
GITHUB_DELIVERIES = f"{API}/hooks/github"
"""The endpoint for GitHub's webhooks."""
CI_DELIVERIES = f"{API}/hooks/ci"
"""The endpoint for other CI systems' webhooks, signed as in Standard Webhooks."""
FILES = ("csv", "ndjson", "junit", "ctrf")
"""The formats in which whole results are streamed."""


@dataclass(frozen=True)
class Listing:
    """A page without an id: `filters` are its query, such as {"test": its key}."""

    path: str

    def __call__(
        self,
        filters: Query | None = None,
        *,
        cursor: str | None = None,
        as_json: bool = False,
    ) -> str:
        path = "/overview" if as_json and self.path == OVERVIEW else self.path
        return f"{path}{_json(as_json)}" + _query({**(filters or {}), "cursor": cursor})


@dataclass(frozen=True)
class Item:
    """A page of one thing, by its id; `chosen` is its query."""

    path: str

    def __call__(
        self,
        id_: str,
        chosen: Query | None = None,
        *,
        cursor: str | None = None,
        as_json: bool = False,
    ) -> str:
        path = f"{self.path}/{_part(id_)}{_json(as_json)}"
        return path + _query({**(chosen or {}), "cursor": cursor})


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of the API for one thing, by its id; `action` is what follows it."""

    path: str
    action: str = ""

    def __call__(self, id_: str) -> str:
        return f"{API}{self.path}/{_part(id_)}{self.action}"


overview = Listing(OVERVIEW)
jobs = Listing(JOBS)
new_job = Listing(NEW_JOB)  # its query, to prefill it: {"from": a job's id}, {"test": a test's key}
gauges = Listing(GAUGES)
bisections = Listing(BISECTIONS)
catalogue = Listing(TESTS)
matrix = Listing(MATRIX)
flags = Listing(FLAGS)  # it lists the open ones unless `state` says otherwise ("any")
waivers = Listing(WAIVERS)
tolerances = Listing(TOLERANCES)
devices = Listing(DEVICES)
runs = Listing(RUNS)
schedules = Listing(SCHEDULES)
webhooks = Listing(WEBHOOKS)
answers = Listing(ANSWERS)
hooks = Listing(HOOKS)
rules = Listing(RULES)
branch = Listing(BRANCH)  # {"head": a build, run or commit, "base": the branch beside it}
worse = Listing(WORSE)  # of a branch, since a day, until a day (2026-11-01)
gauge = Item(GAUGES)
bisection = Item(BISECTIONS)
history = Item(TESTS)
"""A test's page, for a variant (branch, arch, board), an output and a statistic."""
flag = Item(FLAGS)
device = Item(DEVICES)
run = Item(RUNS)
webhook = Item(WEBHOOKS)
hook = Item(HOOKS)

cancel = Endpoint("/jobs", ":cancel")
resubmit = Endpoint("/jobs", ":resubmit")
diagnosis = Endpoint("/jobs", "/diagnosis")
events = Endpoint("/jobs", "/events")
cancel_gauge = Endpoint("/gauges", ":cancel")
cancel_bisection = Endpoint("/bisections", ":cancel")
cancel_run = Endpoint("/runs", ":cancel")
resubmit_run = Endpoint("/runs", ":resubmit")
change_flag = Endpoint("/flags")
waiver_api = Endpoint("/waivers")
schedule_api = Endpoint("/schedules")  # forms.toml names these two
rule_api = Endpoint("/rules")
run_now = Endpoint("/schedules", ":run-now")
test_api = Endpoint("/tests")
device_api = Endpoint("/devices")
test_webhook = Endpoint("/webhooks", ":test")
answer_again = Endpoint("/github/answers", ":again")
hook_api = Endpoint("/hooks/deliveries")
replay_hook = Endpoint("/hooks/deliveries", ":replay")


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
    query: dict[str, str | None] = {"output": output}
    if seed is not None:
        query |= {"seed": str(seed[0]), "repeat": str(seed[1] or "")}
    query |= {name: str(value or "") for name, value in (tests or {}).items()}
    return f"{JOBS}/{_part(job_id)}{_json(as_json)}" + _query(query)


def form(path: str, given: Query) -> str:
    """Return a form, such as NEW_GAUGE, filled with values."""
    return path + _query(given)


def news_seen(until: str) -> str:
    """Return the endpoint that notes that a reader has seen the news until a moment."""
    return f"{API}/news:seen" + _query({"at": until})


def of_test(key: str, what: str, chosen: Query | None = None) -> str:
    """Return a part of the API's view of a test: "attribution", "changes" or "comparison"."""
    return f"{API}/tests/{_part(key)}/{what}" + _query(chosen or {})


def compare(base: str | None = None, head: str | None = None, *, limit: str | None = None) -> str:
    """Return the comparison of two builds or runs, test by test."""
    return COMPARE + _query({"base": base, "head": head, "limit": limit})


def webhook_delivery(webhook_id: str, delivery_id: str) -> str:
    """Return one message with every attempt to deliver it."""
    return f"{WEBHOOKS}/{_part(webhook_id)}/deliveries/{_part(delivery_id)}"


def replay(webhook_id: str, delivery_id: str) -> str:
    """Return the endpoint that sends a message again (POST)."""
    return f"{API}/webhooks/{_part(webhook_id)}/deliveries/{_part(delivery_id)}:replay"


def tolerance_patch(keys: Iterable[str]) -> str:
    """Return the patch that gives these tests the tolerances that gauges advise."""
    return f"{TOLERANCES}/patch?" + urlencode([("test", key) for key in keys])


def badge(key: str, chosen: Query | None = None) -> str:
    """Return the badge of a test, for a variant (branch, arch, board)."""
    return f"{BADGES}/tests/{_part(key)}.svg" + _query(chosen or {})


def search(text: str | None = None, *, as_json: bool = False) -> str:
    """Return the search for a text."""
    return f"{SEARCH}{_json(as_json)}" + _query({"q": text})


def files(noun: str, thing_id: str) -> dict[str, str]:
    """Return the results of one of the "jobs" or "runs", streamed whole, by format (FILES)."""
    path = f"{API}/{noun}/{_part(thing_id)}/results"
    return {form: path + _query({"format": form}) for form in FILES}


def artifact(job_id: str, artifact_id: str) -> str:
    """Return one artifact."""
    return f"{API}/jobs/{_part(job_id)}/artifacts/{_part(artifact_id)}"


def static(name: str) -> str:
    """Return a built asset, by its (hashed) file name."""
    return f"{STATIC}/{quote(name)}"


def further(name: str, value: str) -> str:
    """Return a parameter to append to a URL that has a query already."""
    return f"&{urlencode({name: value})}"


def _part(text: str) -> str:
    return quote(text, safe="")


def _json(as_json: bool) -> str:
    return ".json" if as_json else ""


def _query(values: Query) -> str:
    given = {name: value for name, value in values.items() if value}
    return f"?{urlencode(given)}" if given else ""
