"""Patches of suite files: the tolerances of their tests become those that gauges advise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from io import StringIO
from typing import Any

from sqlalchemy.orm import Session

from gonogo.gauge.report import declared_of
from gonogo.gauge.summary import Slack
from gonogo.settings import Settings
from gonogo.spec.test_spec import TestSpec
from gonogo_service.gauges import store as gauges
from gonogo_service.suites import submission, suite_text
from gonogo_service.suites.bodies import SuiteFile
from gonogo_service.suites.model import SuiteRow
from gonogo_service.suites.suite_text import NotEditable
from gonogo_service.tests import entry_names, test_list

MAX_SUITES = 20
"""Suites of a request: the text of each is read."""
Advised = Mapping[str, Sequence[Slack]]
"""Key of a test -> its outputs, of which some have an advised tolerance."""


@dataclass(frozen=True)
class LeftOut:
    """A test whose tolerance stays as it is, in its suite or in one of its entries, and why."""

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
    wider: list[str]
    """The keys of those whose new tolerance allows more, at least for some values"""
    diff: str


@dataclass(frozen=True)
class Patches:
    """The patches of the suites that ran the tests last, and what none changes."""

    suites: list[SuitePatch]
    left_out: list[LeftOut]


def of_tests(session: Session, settings: Settings, keys: Collection[str]) -> Patches:
    """Return the patches that give these tests the tolerances that their last gauges advise."""
    specs = test_list.specs(session, keys)
    advised = {
        key: gauged.slack
        for key, gauged in gauges.slacks(session, keys).items()
        if any(one.advice for one in gauged.slack)
    }
    suite_of = entry_names.newest(session, advised)
    of_suite = defaultdict[str, dict[str, Sequence[Slack]]](dict)
    patches, left_out = [], []
    for key in dict.fromkeys(keys):
        if key in suite_of:
            of_suite[suite_of[key][0]][key] = advised[key]
        else:
            left_out.append(LeftOut(key, _why_none(specs.get(key), key in advised)))
    for number, (name, chosen) in enumerate(sorted(of_suite.items())):
        try:
            if number >= MAX_SUITES:
                raise NotEditable(f"the tests are of more than {MAX_SUITES} suites: select fewer")
            patch, refused = _patch(session, name, settings, chosen)
            patches += patch
            left_out += refused
        except NotEditable as problem:
            left_out += [LeftOut(key, f"suite {name}: {problem}") for key in chosen]
    return Patches(patches, left_out)


def _why_none(test: Mapping[str, Any] | None, is_advised: bool) -> str:
    if test is None:
        return "no test has this key"
    if not test.get("tolerance"):
        return "it declares no tolerance"
    return "no suite has run it lately" if is_advised else "no gauge advises a tolerance"


def _patch(
    session: Session, name: str, settings: Settings, advised: Advised
) -> tuple[list[SuitePatch], list[LeftOut]]:
    """Return the patch of a suite, if it changes any of these tests, and those that it doesn't.

    Raises NotEditable.
    """
    suite = session.get(SuiteRow, name)
    if suite is None or suite.archived_at is not None:
        state = "isn't stored" if suite is None else "is archived"
        raise NotEditable(f"it ran the test last, and {state}: `gonogo suites push` stores it")
    if suite.file is None:
        push = "`gonogo suites push` stores that of a YAML or JSON file"
        raise NotEditable(f"the server has no text of its file: {push}")
    file = SuiteFile.parse(suite.file)
    entries = defaultdict[int, dict[str, TestSpec]](dict)
    for template, body in submission.checked_tests(suite.content, settings)[0]:
        if isinstance(body.test, TestSpec):
            entries[int(template.place.rpartition(".")[2])][body.test.key] = body.test
    gone = advised.keys() - {key for tests in entries.values() for key in tests}
    left_out = [LeftOut(key, f"suite {name} ran it last, and no longer has it") for key in gone]
    changed: dict[int, TestSpec] = {}
    for number, tests in entries.items():
        if chosen := tests.keys() & advised.keys():
            try:
                changed[number] = _changed(tests, advised)
            except NotEditable as problem:
                reason = f"suite {name}, entries.{number}: {problem}"
                left_out += [LeftOut(key, reason) for key in chosen]
    if not changed:
        return [], left_out
    new = {number: test.canonical()["tolerance"] for number, test in changed.items()}
    diff = "".join(_diff(file, suite_text.with_tolerances(file, suite.content, new)))
    keys, wider = set[str](), set[str]()
    for number, test in changed.items():
        keys |= entries[number].keys()
        wider |= {key for key, old in entries[number].items() if _is_wider(old, test)}
    about = suite.version, file.path, sorted(keys), sorted(wider)
    return [SuitePatch(name, *about, diff)], left_out


def _diff(file: SuiteFile, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff; a line ends at a line feed only, as git has it."""
    texts = StringIO(file.text).readlines(), StringIO(after).readlines()
    for line in unified_diff(*texts, f"a/{file.path}", f"b/{file.path}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _changed(tests: Mapping[str, TestSpec], advised: Advised) -> TestSpec:
    """Return a test with the new tolerance of its entry, whose matrix may make several tests.

    The tolerance passes all that one of their advised tolerances passes. Raises NotEditable.
    """
    if missing := len(tests.keys() - advised.keys()):
        shared = f"it makes {len(tests)} tests, which share a tolerance"
        raise NotEditable(f"{shared}; without advice, or not selected: {missing}")
    tolerances = [
        {name: one.to_json() for name, one in declared_of(test).items()}
        | {one.output: one.advice for one in advised[key] if one.advice}
        for key, test in tests.items()
    ]
    first, *others = ({output: set(limits) for output, limits in one.items()} for one in tolerances)
    if any(other != first for other in others):
        raise NotEditable("it makes tests whose advised tolerances have different comparators")
    loosest = {
        output: {
            name: (min if name == "pcc" else max)(one[output][name] for one in tolerances)
            for name in names
        }
        for output, names in first.items()
    }
    if all(test.replace(tolerance=loosest) == test for test in tests.values()):
        raise NotEditable("it has the advised tolerance")
    return next(iter(tests.values())).replace(tolerance=loosest)


def _is_wider(test: TestSpec, changed: TestSpec) -> bool:
    """Return whether a comparator allows more than before."""
    old = {output: one.to_json() for output, one in declared_of(test).items()}
    return any(
        limit < old[output][name] if name == "pcc" else limit > old[output][name]
        for output, one in declared_of(changed).items()
        for name, limit in one.to_json().items()
        if name in old.get(output, ())
    )
