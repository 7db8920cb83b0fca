"""The forms that create something through the API, filled from the address: forms.toml has them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.selections import is_selection
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_service.kit.database.encoding import encode, timestamp
from gonogo_service.suites import submission as suites
from gonogo_service.tests import entry_names, matrices
from gonogo_service.tests.model import TestSpecRow

MAX_CHARS = 20_000
MAX_BUILDS = 100
WAIVER_DAYS = 14
IN_DAYS = f"in {WAIVER_DAYS} days"
FORMS: dict[str, dict[str, Any]] = tomllib.loads(
    files("gonogo_dashboards.forms").joinpath("forms.toml").read_text()
)
"""The name of what a form creates -> the form, as forms.toml says."""


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


def creation_form(
    noun: str, session: Session, query: Mapping[str, str], now: datetime
) -> CreationForm:
    """Return the form that creates a noun."""
    form = FORMS[noun]
    create, then, undo = f"{urls.API}/{noun}s", getattr(urls, form["then"]), form.get("undo")
    return CreationForm(
        noun,
        form["title"],
        form["about"],
        create,
        f"{create}:validate",
        then() if isinstance(then, urls.Listing) else _of_id(then),
        tuple(_field(session, query, now, **field) for field in form["fields"]),
        form["button"],
        form["done"],
        undo and Undo(undo["method"], _of_id(getattr(urls, undo["address"])), undo["words"]),
        timestamp(now),
    )


def _of_id(address: Any) -> str:
    return str(address("ID")).replace("ID", "{id}")


def _field(session: Session, query: Mapping[str, str], now: datetime, **given: Any) -> FormField:
    """Return a field of forms.toml, with the lists that it names and the value of the address."""
    if given.get("hints") == "builds":
        given["hints"] = _builds(session)
    if "suites" in (given.get("hints"), given.get("choices")):
        names = suites.names(session)
        given["stand_in"] = "".join(names[:1])
        if "hints" in given:
            given["hints"] = tuple(names)
        else:
            given["choices"] = [("", "…"), *((name, name) for name in names)]
    given["choices"] = tuple(map(tuple, given.get("choices", ())))
    field = FormField(path=given.pop("path", given["name"]), **given)
    if field.kind in ("test", "key"):
        return _test_field(session, field, query.get("test", "")[:MAX_CHARS])
    value = field.value
    if value == IN_DAYS:
        value = (now + timedelta(days=WAIVER_DAYS)).date().isoformat()
    return replace(field, value=query.get(field.name, value)[:MAX_CHARS])


def _builds(session: Session) -> tuple[str, ...]:
    """Return the names of the builds that ran, the latest first."""
    builds = sorted(matrices.builds(session), key=lambda build: build.newest_job, reverse=True)
    return tuple(build.name for build in builds[:MAX_BUILDS])


def _test_field(session: Session, field: FormField, given: str) -> FormField:
    """Return the field of a test, or of its key; `?test=` may be a test's key or its JSON."""
    key = given if given and not given.startswith("{") else ""
    stored = session.get(TestSpecRow, key) if key else None
    chosen = "" if stored is None else _about(session, stored)
    if field.kind == "key":
        return replace(field, value=given, chosen=chosen)
    value = given if stored is None else encode(stored.test)
    return replace(field, value=value, chosen=chosen)


def _about(session: Session, stored: TestSpecRow) -> str:
    """Return the name of a test, and what tells it apart."""
    if is_selection(stored.test):
        return f"a selection · {stored.key}"
    name = entry_names.latest(session, [stored.key]).get(stored.key)
    about = (
        f"{stored.kernel} {shape_of(stored.test)}",
        tolerance_of(stored.test),
        details_of(stored.test, name),
        stored.key,
    )
    return " · ".join(filter(None, about))
