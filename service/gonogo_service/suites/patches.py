"""Patches of suite files: the tolerances of their tests become those that gauges advise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from sqlalchemy.orm import Session

from gonogo.gauge.summary import Slack
from gonogo.settings import Settings
from gonogo.spec.test_spec import TestSpec
from gonogo_service.gauges import store as gauges
from gonogo_service.suites import store, submission, suite_text
from gonogo_service.suites.model import SuiteRow
from gonogo_service.suites.suite_text import NotEditable
from gonogo_service.tests import entry_names

Tolerance = Mapping[str, Mapping[str, float]]
"""Output -> comparator -> limit."""


@dataclass(frozen=True)
class LeftOut:
    """A test whose tolerance no patch changes, and why."""

    test: str
    reason: str


@dataclass(frozen=True)
class SuitePatch:
    """A unified diff of the file of a suite, for `git apply` or `patch -p1`."""

    suite: str
    version: int
    path: str
    tests: list[str]
    """The keys of the tests whose tolerance it changes"""
    note: str
    """Why it is a diff of the suite as the server writes it; "" for that of the pushed file"""
    diff: str


@dataclass(frozen=True)
class Patches:
    """The patches of all suites that have the tests, and the tests that none changes."""

    suites: list[SuitePatch]
    left_out: list[LeftOut]


class _Refused(Exception):
    """The tolerance of an entry stays as it is; the message says why."""


def of_tests(session: Session, settings: Settings, keys: Collection[str]) -> Patches:
    """Return the patches that give these tests the tolerances that their last gauges advise."""
    slacks = gauges.slacks(session)
    advised = {
        key: slacks[key].slack
        for key in dict.fromkeys(keys)
        if key in slacks and any(one.advice for one in slacks[key].slack)
    }
    reasons = {key: "no gauge advises a tolerance" for key in keys if key not in advised}
    of_suite = defaultdict[str, list[str]](list)
    for key, (name, _) in entry_names.newest(session, advised).items():
        of_suite[name].append(key)
    nowhere = "no stored suite has it: `gonogo suites push FILE` stores one"
    reasons |= dict.fromkeys(advised, nowhere)
    patches = []
    for name in sorted(of_suite):
        suite = store.get(session, name)
        if suite is not None and suite.archived_at is None:
            chosen = {key: advised[key] for key in of_suite[name]}
            patch = _patch(suite, settings, chosen, reasons)
            patches += [patch] if patch.tests else []
    return Patches(patches, [LeftOut(key, reason) for key, reason in reasons.items()])


def _patch(
    suite: SuiteRow,
    settings: Settings,
    advised: Mapping[str, Sequence[Slack]],
    reasons: dict[str, str],
) -> SuitePatch:
    """Return the patch of a suite; `reasons` are those of tests that no patch changes."""
    file = suite.content.get("file")
    note = "the server has only its content: `gonogo suites push FILE` stores its text"
    if file is not None:
        try:
            return _of_text(suite, file["path"], file["text"], settings, advised, reasons)
        except NotEditable as problem:
            note = f"{file['path']} can't be changed here: {problem}"
    content = {name: value for name, value in suite.content.items() if name != "file"}
    text = suite_text.written(content)
    return _of_text(suite, f"{suite.name}.yaml", text, settings, advised, reasons, note)


def _of_text(
    suite: SuiteRow,
    path: str,
    text: str,
    settings: Settings,
    advised: Mapping[str, Sequence[Slack]],
    reasons: dict[str, str],
    note: str = "",
) -> SuitePatch:
    entries = defaultdict[int, dict[str, TestSpec]](dict)
    for template, body in submission.checked_tests(suite_text.read(text), settings)[0]:
        if isinstance(body.test, TestSpec):
            entries[int(template.place.rpartition(".")[2])][body.test.key] = body.test
    changed: dict[int, dict[str, Any]] = {}
    keys: list[str] = []
    for number, tests in entries.items():
        chosen = tests.keys() & advised.keys()
        if not chosen:
            continue
        try:
            changed[number] = _of_entry(tests, advised)
            keys += chosen
        except _Refused as problem:
            reasons |= dict.fromkeys(chosen, str(problem))
    after = suite_text.with_tolerances(text, changed)
    for key in keys:
        reasons.pop(key, None)
    names = f"a/{path}", f"b/{path}"
    diff = unified_diff(text.splitlines(True), after.splitlines(True), *names)
    return SuitePatch(suite.name, suite.version, path, sorted(keys), note, "".join(diff))


def _of_entry(
    tests: Mapping[str, TestSpec], advised: Mapping[str, Sequence[Slack]]
) -> dict[str, Any]:
    """Return the tolerance of an entry, whose matrix may make several tests.

    It passes all that one of their advised tolerances passes. Raises _Refused.
    """
    if missing := len(tests.keys() - advised.keys()):
        shared = f"its entry makes {len(tests)} tests, which share a tolerance"
        raise _Refused(f"{shared}; without advice, or not selected: {missing}")
    test = next(iter(tests.values()))
    loosest = _loosest([_advised(one, advised[key]) for key, one in tests.items()])
    new = test.replace(tolerance=loosest).canonical().get("tolerance")
    if not new:
        raise _Refused("its entry makes tests whose advised tolerances have nothing in common")
    if all(one.replace(tolerance=loosest) == one for one in tests.values()):
        raise _Refused("it has the advised tolerance")
    return dict(new)


def _advised(test: TestSpec, slacks: Sequence[Slack]) -> Tolerance:
    """Return the advised tolerance of each output, and the declared one where none is advised."""
    declared = {name: test.tolerance_for(name) for name in test.outputs}
    tolerance = {name: one.to_json() for name, one in declared.items() if one is not None}
    return tolerance | {one.output: one.advice for one in slacks if one.advice}


def _loosest(tolerances: Sequence[Tolerance]) -> dict[str, dict[str, float]]:
    """Return the tolerance that passes all that one of these passes."""

    def common(all_of: Iterable[Mapping[str, Any]]) -> list[str]:
        first, *others = all_of
        return [name for name in first if all(name in other for other in others)]

    return {
        output: {
            name: (min if name == "pcc" else max)(one[output][name] for one in tolerances)
            for name in common(one[output] for one in tolerances)
        }
        for output in common(tolerances)
    }
