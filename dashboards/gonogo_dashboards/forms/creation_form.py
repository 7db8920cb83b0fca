"""Read models of the forms that create something through the API, filled from the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.selections import is_selection
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import encode, timestamp
from gonogo_service.suites import store as suites
from gonogo_service.tests import matrices, test_specs
from gonogo_service.tests.test_specs import StoredTest

MAX_CHARS = 20_000
_SOME_TEST = '{"kernel": "layernorm_bw", "shape": [32, 64]}'
MAX_BUILDS = 100
WAIVER_DAYS = 14


@dataclass(frozen=True)
class FormField:
    """A field: `path` is its place in the API's body, `kind` how its text becomes JSON.

    Kinds: text, number, words (a list, by commas), labels, test (its JSON, which a picker fills
    in), key (a test's key, which a picker fills in), tick, date, area.
    """

    name: str
    label: str
    path: str
    kind: str = "text"
    hint: str = ""
    value: str = ""
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    hints: tuple[str, ...] = ()
    """Values that the browser offers."""
    chosen: str = ""
    """The name of the test that is filled in, and what tells it apart."""
    stand_in: str = ""
    """The text that a check sends while the field is empty, so that the API checks the others."""
    alternative: str = ""
    """The field that may be filled in instead, so that this one is not needed."""


@dataclass(frozen=True)
class Undo:
    """The request that takes a new thing back ("{id}"), and what the page says then."""

    method: str
    url: str
    words: str


@dataclass(frozen=True)
class CreationForm:
    """A form: the API's address for it, and the page that a new thing has ("{id}")."""

    noun: str
    title: str
    about: str
    create_url: str
    validate_url: str
    then_url: str
    fields: tuple[FormField, ...]
    button: str
    done: str
    """The next page's words about the new thing."""
    undo: Undo | None
    at: str | None


_LABELS = FormField("labels", "Labels", "labels", "labels", "suite=nightly, team=kernels")


def gauge(session: Session, query: Mapping[str, str], now: datetime) -> CreationForm:
    """Return the form that measures a test."""
    return _form(
        "gauge",
        "Gauge a test",
        "A gauge runs right and known-wrong kernels on the test: would it notice a wrong one?",
        urls.gauge("ID"),
        (
            _test(session, query),
            FormField("branch", "Branch", "branch", hint="the branch that gets the grade"),
            FormField("arch", "Architecture", "target.arch", hint="empty: wormhole"),
            FormField("board", "Board", "target.board", hint="empty: n150"),
            FormField("count", "Seeds", "seeds.count", "number", "per kernel; empty: 16"),
            FormField(
                "builds", "Right builds", "builds", "words", "of the executor; they must pass"
            ),
            FormField("wrong", "Wrong builds", "wrong_builds", "words", "they must fail"),
        ),
        "Start the gauge",
        "The gauge was submitted. This page follows it.",
        Undo("POST", urls.cancel_gauge("ID"), "The gauge is canceled."),
        query,
        now,
    )


def bisection(session: Session, query: Mapping[str, str], now: datetime) -> CreationForm:
    """Return the form that looks for the build that changed a test."""
    names = tuple(
        build.name
        for build in sorted(
            matrices.builds(session), key=lambda build: build.newest_job, reverse=True
        )
    )[:MAX_BUILDS]
    return _form(
        "bisection",
        "Find the build that changed a test",
        "Builds of a branch run until the place of the change is known, although runs are noisy.",
        urls.bisection("ID"),
        (
            _test(session, query),
            FormField("branch", "Branch", "branch", hint="its builds, in their order"),
            FormField("first", "First build", "first", hint="empty: the branch's", hints=names),
            FormField("last", "Last build", "last", hint="empty: the newest", hints=names),
            FormField(
                "builds", "Or these builds", "builds", "words", "in order, instead of a branch"
            ),
            FormField(
                "expect",
                "The last build is",
                "expect",
                choices=(("", "Better or worse"), ("worse", "Worse"), ("better", "Better")),
            ),
            FormField("executor", "Executor", "target.executor", hint="empty: emulator"),
            FormField("max_runs", "Runs at most", "max_runs", "number"),
        ),
        "Start the bisection",
        "The bisection has begun. This page follows it.",
        Undo("POST", urls.cancel_bisection("ID"), "The bisection is canceled."),
        query,
        now,
    )


def waiver(session: Session, query: Mapping[str, str], now: datetime) -> CreationForm:
    """Return the form that accepts a test's findings until a date."""
    until = (now + timedelta(days=WAIVER_DAYS)).date().isoformat()
    return _form(
        "waiver",
        "Accept findings until a date",
        "Waived findings don't block a commit. A waiver changes no verdict, and ends by itself.",
        urls.waivers(),
        (
            _key(session, query),
            FormField(
                "reason",
                "Reason",
                "reason",
                "area",
                "a ticket, and why",
                required=True,
                stand_in="a ticket",
            ),
            FormField("expires", "Ends on (UTC)", "expires", "date", value=until, required=True),
            FormField("owner", "Owner", "owner", hint="empty: you"),
            FormField("builds", "Only builds", "builds", "words", "patterns; empty: any"),
            FormField(
                "names",
                "Or tests by name",
                "names",
                "words",
                "patterns as in a comparison",
                stand_in="**",
                alternative="test",
            ),
        ),
        "Accept",
        "The waiver is in force.",
        Undo("DELETE", urls.end_waiver("ID"), "The waiver has ended."),
        query,
        now,
    )


def schedule(session: Session, query: Mapping[str, str], now: datetime) -> CreationForm:
    """Return the form that submits a suite at times."""
    names = suites.names(session)
    known = tuple((name, name) for name in names)
    return _form(
        "schedule",
        "Schedule a suite",
        "A schedule submits its suite by itself. Its times are in its time zone.",
        urls.schedules(),
        (
            FormField("name", "Name", "name", required=True, stand_in="nightly"),
            FormField(
                "suite",
                "Suite",
                "suite",
                required=True,
                choices=(("", "…"), *known),
                stand_in="".join(names[:1]),
            ),
            FormField(
                "cron",
                "Cron line",
                "cron",
                hint="minute, hour, day of month, month, day of week",
                value="30 2 * * *",
                required=True,
            ),
            FormField("timezone", "Time zone", "timezone", hint="Europe/Berlin", value="UTC"),
            FormField(
                "overlap",
                "While its last run is open",
                "overlap",
                choices=(("skip", "Skip"), ("allow", "Run anyway")),
            ),
            FormField("builds", "Builds", "builds", "words", "empty: the suite's builds"),
            _LABELS,
        ),
        "Create the schedule",
        "The schedule is active.",
        Undo("DELETE", urls.schedule_api("ID"), "The schedule is archived."),
        query,
        now,
    )


def webhook(session: Session, query: Mapping[str, str], now: datetime) -> CreationForm:
    """Return the form that sends events to another system."""
    return _form(
        "webhook",
        "New webhook",
        "A system that gets signed messages about events (its secret is shown once), or people.",
        urls.webhook("ID"),
        (
            FormField(
                "url",
                "Address",
                "url",
                hint="https://…; for people an apprise URL, such as slack://… or mailtos://…",
                required=True,
                stand_in="https://example.com/",
            ),
            FormField(
                "kind",
                "Kind",
                "kind",
                choices=tuple(words.options(words.WEBHOOK_KINDS)),
            ),
            FormField(
                "events",
                "Events",
                "events",
                "words",
                "job.finished, run.finished, flag.opened, flag.resolved, bisection.finished,"
                " device.health_changed; * for all",
                value="run.finished, flag.opened",
                required=True,
            ),
            FormField("description", "Description", "description"),
        ),
        "Create the webhook",
        "The webhook is there.",
        None,
        query,
        now,
    )


def rule(session: Session, query: Mapping[str, str], now: datetime) -> CreationForm:
    """Return the form that says what an incoming webhook starts."""
    known = tuple(suites.names(session))
    return _form(
        "rule",
        "New rule",
        "Events of repositories that start suites. A rule with the same name is replaced.",
        urls.rules(),
        (
            FormField("name", "Name", "name", required=True, stand_in="pull-requests"),
            FormField(
                "events",
                "Events",
                "events",
                "words",
                "push, pull_request, workflow_run, check_suite, commit",
                required=True,
                stand_in="push",
            ),
            FormField(
                "repositories",
                "Repositories",
                "repositories",
                "words",
                "owner/name",
                required=True,
                stand_in="owner/name",
            ),
            FormField("branches", "Branches", "branches", "words", "patterns; empty: all"),
            FormField("paths", "Paths", "paths", "words", "at least one changed path must match"),
            FormField(
                "suites",
                "Suites",
                "suites",
                "words",
                "stored suites that it starts",
                hints=known,
                stand_in="".join(known[:1]),
            ),
            FormField("head", "Build of the commit", "builds.head", hint="empty, or tt-{sha}"),
            FormField("forks", "Also run commits of forks", "forks", "tick"),
            FormField("description", "Description", "description"),
        ),
        "Store the rule",
        "The rule is in use.",
        Undo("DELETE", urls.rule_api("ID"), "The rule is archived."),
        query,
        now,
    )


FORMS = {
    urls.NEW_GAUGE: (gauge, "submit"),
    urls.NEW_BISECTION: (bisection, "submit"),
    urls.NEW_WAIVER: (waiver, "submit"),
    urls.NEW_SCHEDULE: (schedule, "submit"),
    urls.NEW_WEBHOOK: (webhook, "admin"),
    urls.NEW_RULE: (rule, "admin"),
}
"""The form of each address, and the scope that it needs."""


def _test(session: Session, query: Mapping[str, str]) -> FormField:
    """Return the field of a test; `?test=` may be a test's key instead of its JSON."""
    given = query.get("test", "")[:MAX_CHARS]
    stored = test_specs.get(session, given) if given and not given.startswith("{") else None
    value = given if stored is None else encode(stored.test)
    chosen = _chosen(session, stored)
    hint = 'for example {"kernel": "layernorm_bw", "shape": [32, 1024], "tolerance": {"atol": 0.5}}'
    return FormField(
        "test",
        "Test",
        "test",
        "test",
        hint,
        value,
        required=True,
        chosen=chosen,
        stand_in=_SOME_TEST,
    )


def _key(session: Session, query: Mapping[str, str]) -> FormField:
    """Return the field of a test's key, with the name of the test that has it."""
    given = query.get("test", "")[:MAX_CHARS]
    chosen = _chosen(session, test_specs.get(session, given) if given else None)
    return FormField("test", "Test", "test", "key", "v1-…", given, chosen=chosen)


def _chosen(session: Session, stored: StoredTest | None) -> str:
    """Return the name of a test, and what tells it apart; "" for none."""
    if stored is None:
        return ""
    canonical, key = stored.test, stored.key
    about = (
        ("a selection",)
        if is_selection(canonical)
        else (
            f"{stored.kernel} {shape_of(canonical)}",
            tolerance_of(canonical),
            details_of(canonical, entry_names.latest(session, [key]).get(key)),
        )
    )
    return " · ".join(part for part in (*about, key) if part)


def _form(
    noun: str,
    title: str,
    about: str,
    then_url: str,
    fields: tuple[FormField, ...],
    button: str,
    done: str,
    undo: Undo | None,
    query: Mapping[str, str],
    now: datetime,
) -> CreationForm:
    create = f"{urls.API}/{noun}s"
    return CreationForm(
        noun,
        title,
        about,
        create,
        f"{create}:validate",
        then_url.replace("ID", "{id}"),
        tuple(
            field
            if field.kind in ("test", "key")
            else _filled(field, query.get(field.name, field.value)[:MAX_CHARS])
            for field in fields
        ),
        button,
        done,
        undo and replace(undo, url=undo.url.replace("ID", "{id}")),
        timestamp(now),
    )


def _filled(field: FormField, value: str) -> FormField:
    return replace(field, value=value)
