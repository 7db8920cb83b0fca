"""Advice with a button: a tolerance filled into the form of a job, a gauge, a bisection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo import urls
from gonogo.gauge.advice import spelled
from gonogo.gauge.comparators import above
from gonogo_dashboards.kit import words
from gonogo_service.kit.database.encoding import encode

_OWN_FIELDS = ("kernel", "shape", "epsilon", "tolerance", "numerics")
"""Fields of a test that are not in the form's field `rest`; see `rest_of`."""
FORM_COMPARATORS = ("rtol", "atol", "pcc")
"""Comparators of all outputs that have a field in the form; others are in its field `rest`."""
_CLOSE = ("rtol", "atol")
"""Comparators whose limits add up to one: twice both allows twice the error."""
_DIGITS = 2
"""Digits of an advised limit: a tolerance is no measurement, so more would pretend to be one."""


@dataclass(frozen=True)
class Advice:
    """A step: why, and the page where it is done."""

    text: str
    label: str
    url: str


def to_gauge(key: str, place: Mapping[str, str]) -> Advice:
    """Return the step for a test that no gauge has measured; place: branch, arch and board."""
    text = "No gauge has measured whether this test would notice a wrong kernel."
    return Advice(text, "Gauge this test", urls.form(urls.NEW_GAUGE, {"test": key, **place}))


def to_bisect(key: str, branch: str, first: str, last: str) -> Advice:
    """Return the step for a test that changed between two builds."""
    given = {"test": key, "branch": branch, "first": first, "last": last}
    form = urls.form(urls.NEW_BISECTION, given)
    text = "A bisection finds the build that did it."
    return Advice(text, "Bisect between these builds", form)


def of_false_alarm(
    key: str,
    test: Mapping[str, Any],
    gauged: Mapping[str, Mapping[str, float]],
    largest: float | None,
) -> Advice:
    """Return the step for a test whose tolerance is tighter than its formats allow.

    gauged: the tolerance that a gauge advises, output -> comparators; {} for none. largest: the
    largest error that rounding explained, divided by the tolerance; None where nobody knows.
    """
    why = "The kernel is right, and the tolerance is tighter than its formats allow"
    if gauged:
        text = f"{why}. The gauge advises {spelled(gauged)}."
        return Advice(text, "Submit with this tolerance", with_tolerance(key, test, gauged))
    wider = widened(test.get("tolerance", {}), largest)
    if not wider or largest is None:
        return Advice(f"{why}.", "Submit with another tolerance", urls.new_job({"test": key}))
    limits = ", ".join(f"{name} {value:g}" for name, value in wider.items())
    form = urls.new_job({"test": key, **{name: f"{value:g}" for name, value in wider.items()}})
    return Advice(
        f"{why}: its largest error needs {words.number(largest)} times as much.",
        f"Submit with {limits}",
        form,
    )


def widened(tolerance: Mapping[str, Any], largest: float | None) -> dict[str, float]:
    """Return a test's rtol and atol that allow its largest error, rounded up.

    {} where they are not what decides, or where no error is larger than they allow.
    """
    if largest is None or largest <= 1 or not tolerance.keys() <= set(_CLOSE):
        return {}
    limits = {name: tolerance[name] for name in _CLOSE if tolerance.get(name)}
    return {name: above(value * largest, _DIGITS) for name, value in limits.items()}


def with_tolerance(
    key: str, test: Mapping[str, Any], tolerance: Mapping[str, Mapping[str, float]]
) -> str:
    """Return the form of a job with this tolerance (output -> comparators) instead of its own."""
    form = urls.new_job({"test": key, "rest": rest_of({**test, "tolerance": tolerance})})
    return form + "".join(urls.further(name, "") for name in FORM_COMPARATORS)


def rest_of(test: Mapping[str, Any]) -> str:
    """Return the JSON of what has no field of its own in the form; "" for nothing."""
    rest = {name: value for name, value in test.items() if name not in _OWN_FIELDS}
    tolerance, formats = test.get("tolerance", {}), test.get("numerics", {}).get("input")
    others = {name: value for name, value in tolerance.items() if name not in FORM_COMPARATORS}
    rest |= {"tolerance": others} if others else {}
    rest |= {"numerics": {"input": formats}} if isinstance(formats, Mapping) else {}
    return encode(rest) if rest else ""
