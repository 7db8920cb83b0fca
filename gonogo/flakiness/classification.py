"""Classify a test on a commit for CI: head against base, each kind of failure by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from gonogo.flakiness import arithmetic_changes, device_times
from gonogo.flakiness.classes import (
    LOST,
    NEW,
    Class,
    Classification,
    Finding,
    OpenFlag,
    RunSummary,
)
from gonogo.flakiness.device_times import TimeChange
from gonogo.flakiness.flag_kinds import Accepted, FlagKind
from gonogo.flakiness.masking import BuildChange, Change, compare_builds
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import fisher
from gonogo.spec.verdicts import Verdict

UNSURE = (Verdict.suspect, Verdict.inconclusive, Verdict.skipped, Verdict.not_run)
"""Verdicts of runs that are neither green nor red, or not for certain; the first two are judged."""
_LOST_FLAGS = {Verdict.hang: Accepted.hangs, Verdict.crash: Accepted.crashes}


class Why(StrEnum):
    """Why results have their class: the end of the finding's words.

    `share` is base's of the same results, `errors` the comparison of the errors.
    """

    nothing = ""
    acknowledged = "flag {flag}, acknowledged by {owner}{until}: {reason}"
    flagged = "open flag {flag}"
    few_seeds = "open flag {flag}: too few seeds to call it fixed"
    silent = "{silence}"
    no_arrays = "base has no arrays to judge"
    lost_too = "on base, too: {before}"
    on_base = "on base {share}"
    compared = "on base {share}{errors}"
    hidden = "on base the same error, hidden by the tolerance{errors}"
    other_red = "red on base, too, with another error{worse}{errors}"
    less_often = "red on base, too, but less often: {share}{worse}{errors}"
    right = "base was red, too, and right: {alarms}{worse}{errors}"
    none_red = "none of {answered} on base{worse}{errors}"
    other_hollow = "with another error than on base{errors}"
    masked = "red on base, and the same error stays: masked, not fixed{errors}"
    was_red = "red on base{errors}"
    none_hollow = "none of {judged} on base{errors}"
    was_hollow = "green and unexplained on base {share}{errors}"
    red_before = "red on base {share}{errors}"


def classify(
    base: RunSummary | None, head: RunSummary | None, flags: Sequence[OpenFlag] = ()
) -> Classification:
    """Return how a test changed from base to head, with the evidence.

    Head's runs are split by their results: lost (hang, crash, error), red, false alarm, green and
    hollow. Each part is decided by itself, so a crashed seed hides no red one, and a known red
    hides no new hollow pass: waived -> infrastructure -> broken on base -> known flaky (or known
    hollow) -> unknown -> new. If there is no such part, the news is good: fixed, no longer hollow,
    passed. Raises ValueError if the test ran on neither side.

    flags: those that were opened before head ran, or that someone acknowledged.
    """
    if base is None and head is None:
        raise ValueError("a test needs results on base or head to have a class")
    before = base or RunSummary("")
    if head is None or head.is_empty:
        words = f"{before.answered} runs on {before.build}, none on head"
        evidence = {"base": asdict(before.shown)}
        return Classification((Finding(Class.not_run, Verdict.not_run, words, False, evidence),))
    change = None
    if before.record and head.record:
        change = compare_builds(before.record, head.record)
    compared = Classification((), change, device_times.compare(before.times, head.times))
    case = _Case(before, head, tuple(flags), change)
    findings = [*case.lost(), *case.red(), *case.false_alarm(), *case.hollow()] or [case.good()]
    if beside := [*filter(None, (_slower(compared.time), case.arithmetic()))]:
        nothing_new = findings[0].kind is Class.passed and not findings[0].evidence
        findings = beside if nothing_new else [*findings, *beside]
    return compared.with_findings(findings)


def _slower(time: TimeChange | None) -> Finding | None:
    """Return the finding of a kernel that takes longer on its device than on base."""
    if time is None or not time.slower:
        return None
    evidence = {"time": asdict(time), "policy": POLICY.version}
    return Finding(Class.slower, Verdict.pass_, time.words, True, evidence)


@dataclass(frozen=True)
class _Part:
    """Results of head that are decided together, and the flag that may cover them."""

    verdict: Verdict
    words: str
    before: int = 0
    """The same results on base"""
    p: float | None = None
    """Fisher's test, where head is worse"""
    flag: OpenFlag | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Case:
    base: RunSummary
    head: RunSummary
    flags: tuple[OpenFlag, ...]
    change: BuildChange | None

    def lost(self) -> Iterator[Finding]:
        """Yield a finding for each verdict of lost runs, for sick devices, and for no result."""
        base, head = self.base, self.head
        if head.waiting:
            words = f"{head.waiting} job{'' if head.waiting == 1 else 's'} of head not finished"
            yield Finding(Class.pending, Verdict.inconclusive, words, False)
        for verdict in filter(head.of, LOST):
            number, before = head.of(verdict), base.of(verdict)
            words = f"{number} of {sum(head.counts.values())} runs: {verdict.value}"
            flag = self._flag(_LOST_FLAGS.get(verdict))
            part = _Part(verdict, words, before, None, flag, {"head": number, "base": before})
            is_new = not before and flag is None and bool(base.answered)
            why = Why.lost_too if before else Why.nothing
            yield self._finding(part, Class.infrastructure, why, new=is_new)
        for name, counts, start, joint in (
            ("sick", head.sick, "left out, because the device was sick", "on "),
            ("ended_empty", head.ended_empty, "ended without a result", ""),
        ):
            if counts and (name == "sick" or not (head.answered or head.waiting)):
                named = ", ".join(
                    f"{number} {joint}{one}" for one, number in sorted(counts.items())
                )
                part = _Part(Verdict.error, f"{start}: {named}", evidence={name: dict(counts)})
                yield self._finding(part, Class.infrastructure, Why.nothing)

    def red(self) -> Iterator[Finding]:
        """Yield the finding of red runs that are wrong or have no arrays."""
        head = self.head
        if head.red:
            verdict = Verdict.fail if head.of(Verdict.fail) else Verdict.not_judged
            words = f"red {head.red} of {head.answered}"
            part = self._part(verdict, words, self.base.red, head.red, Accepted.red)
            yield self._finding(part, *self._decide_red(part))

    def _decide_red(self, part: _Part) -> tuple[Class, Why]:
        # A fault that base hides behind its tolerance is not new in this commit: stored numbers
        # beat red and green.
        base, same, hollow = self.base, self._same(), self.base.of(Verdict.pass_by_tolerance)
        wrong = base.red + hollow, self.head.red + self.head.of(Verdict.pass_by_tolerance)
        is_there = base.red or (same is True and hollow)
        if is_there and same is not False and self._worse(*wrong) is None:
            return Class.broken_on_base, Why.compared if base.red else Why.hidden
        if part.flag is not None and part.p is None:
            return Class.known_flaky, Why.flagged
        if not base.answered:
            return Class.unknown, Why.silent
        if base.red:
            return Class.new_failure, Why.other_red if same is False else Why.less_often
        is_right = base.of(Verdict.fail_by_tolerance)
        return Class.new_failure, Why.right if is_right else Why.none_red

    def false_alarm(self) -> Iterator[Finding]:
        """Yield the finding of red runs that rounding explains.

        The tolerance is to blame, even if another commit tightened it.
        """
        verdict = Verdict.fail_by_tolerance
        if number := self.head.of(verdict):
            before, answered = self.base.of(verdict), bool(self.base.answered)
            words = f"red though right {number} of {self.head.answered}"
            part = self._part(verdict, words, before, number, Accepted.false_alarms)
            why = Why.on_base if answered else Why.silent
            yield self._finding(part, Class.false_alarm, why, new=answered and not before)

    def hollow(self) -> Iterator[Finding]:
        """Yield the finding of green runs that rounding doesn't explain."""
        verdict = Verdict.pass_by_tolerance
        if number := self.head.of(verdict):
            words = f"green and unexplained {number} of {self.head.answered}"
            part = self._part(verdict, words, self.base.of(verdict), number, Accepted.hollow)
            yield self._finding(part, *self._decide_hollow(part, number))

    def _decide_hollow(self, part: _Part, number: int) -> tuple[Class, Why]:
        base, head, before, same = self.base, self.head, part.before, self._same()
        wrong = base.red + before, head.red + number
        if before and same is not False and self._worse(*wrong) is None:
            return Class.known_hollow, Why.compared
        # One rare hollow seed under an old flag is nothing new. But where every seed of base was
        # explained and none of head is, a flag that has not expired yet must not hide that the
        # fault came back.
        clean = not before and not base.red
        is_back = clean and base.judged and head.judged == head.red + number
        if part.flag is not None and clean and not is_back and part.p is None:
            return Class.known_hollow, Why.flagged
        if not base.judged:
            return Class.unknown, Why.no_arrays if base.answered else Why.silent
        if before:
            return Class.new_hollow_pass, Why.other_hollow if same is False else Why.compared
        if base.red:
            return Class.new_hollow_pass, Why.masked if same else Why.was_red
        return Class.new_hollow_pass, Why.none_hollow

    def good(self) -> Finding:
        """Return the finding of runs that are neither lost, red nor hollow."""
        base, head = self.base, self.head
        if not head.answered or head.of(Verdict.suspect):
            verdict = next(filter(head.of, UNSURE), Verdict.not_run)
            kind = Class.undecided if verdict in UNSURE[:2] else Class.not_run
            words = f"{head.of(verdict)} of {sum(head.counts.values())} runs: {verdict.value}"
            return Finding(kind, verdict, words, False)
        verdict = Verdict.not_judged if head.of(Verdict.not_judged) else Verdict.pass_
        without = "" if verdict is Verdict.pass_ else ", without arrays to judge"
        words = f"green {head.answered} of {head.answered}{without}"
        red = base.red + base.of(Verdict.fail_by_tolerance)
        hollow = base.of(Verdict.pass_by_tolerance) if head.judged else 0
        if not (red or hollow):
            return Finding(Class.passed, verdict, words, False)
        part = self._part(verdict, words, red or hollow, 0, Accepted.red if red else None)
        if not red:
            return self._worded(part, Class.no_longer_hollow, Why.was_hollow)
        if part.flag and fisher(0, head.answered, red, base.answered) > POLICY.significance:
            return self._worded(part, Class.passed, Why.few_seeds)
        part = self._part(verdict, words, red, 0, None)
        return self._worded(part, Class.fixed, Why.red_before)

    def arithmetic(self) -> Finding | None:
        """Return the finding of outputs that are explained by another arithmetic than on base."""
        if self.base.programs is None or self.head.programs is None:
            return None
        changed = arithmetic_changes.changes(self.head.programs, [self.base.programs])
        if not changed:
            return None
        words = arithmetic_changes.words(changed)
        evidence = {"arithmetic": [asdict(change) for change in changed]}
        return Finding(Class.arithmetic_changed, Verdict.pass_, words, True, evidence)

    def _part(
        self, verdict: Verdict, words: str, before: int, number: int, accepted: Accepted | None
    ) -> _Part:
        """Return results with both rates, p where head is worse, and the errors' comparison."""
        p = self._worse(before, number)
        evidence: dict[str, Any] = {
            "head": asdict(self.head.share(number)),
            "base": asdict(self.base.share(before)) if self.base.answered else None,
            "p": p,
            "policy": POLICY.version,
        }
        if self.change is not None:
            evidence["change"] = asdict(self.change)
        return _Part(verdict, words, before, p, self._flag(accepted), evidence)

    def _finding(self, part: _Part, kind: Class, why: Why, *, new: bool = False) -> Finding:
        """Return the finding of results; it is waived where someone acknowledged their flag."""
        if part.flag is not None and part.flag.acknowledged:
            return self._worded(part, Class.waived, Why.acknowledged)
        return self._worded(part, kind, why, new=new or kind in NEW)

    def _worded(self, part: _Part, kind: Class, why: Why, *, new: bool = False) -> Finding:
        base, flag = self.base, part.flag or OpenFlag("", "", False)
        end = why.format(
            before=part.before,
            share=base.share(part.before).words if base.answered else "",
            alarms=base.share(base.of(Verdict.fail_by_tolerance)).words,
            answered=base.answered,
            judged=base.judged,
            silence=self._silence(),
            errors=self._errors(),
            flag=flag.kind,
            owner=flag.owner or "someone",
            until=f" until {flag.expires[:16].replace('T', ' ')} UTC" if flag.expires else "",
            reason=flag.reason or "no reason given",
            worse=f"; worse than open flag {flag.kind} can account for" if part.flag else "",
        )
        words = f"{part.words}; {end}" if end else part.words
        flagged = {} if part.flag is None else {"flag": asdict(part.flag)}
        return Finding(kind, part.verdict, words, new, {**part.evidence, **flagged})

    def _worse(self, before: int, number: int) -> float | None:
        """Return Fisher's p if head has significantly more of it than base; else None."""
        runs, others = self.head.answered, self.base.answered
        if not others or not runs or number * others <= before * runs:
            return None
        p = fisher(number, runs, before, others)
        return p if p < POLICY.significance else None

    def _same(self) -> bool | None:
        """Return whether head has the same error as base; None if their numbers can't tell."""
        change = self.change
        if change is None or change.change is Change.unknown:
            return None
        if change.change in (Change.still_wrong, Change.fix_masked, Change.unchanged):
            return True
        is_unnamed = change.change is Change.wrong_otherwise and not change.differing
        return None if is_unnamed else False

    def _silence(self) -> str:
        """Return why base has no result."""
        if self.base.waiting:
            return "base has not finished"
        return "base was not run" if self.base.is_empty else "base gave no answer"

    def _errors(self) -> str:
        """Return the result of comparing the errors, for the end of a sentence."""
        if self.change is None or self.change.change is Change.unknown:
            return ""
        by = f", by {self.change.by}" if self.change.by in ("digests", "faults", "places") else ""
        sentence = self.change.change.sentence.removesuffix(".")
        return f" ({sentence[0].lower()}{sentence[1:]}{by})"

    def _flag(self, accepted: Accepted | None) -> OpenFlag | None:
        """Return an open flag that accepts such results; acknowledged flags come first."""
        fit = [flag for flag in self.flags if accepted and FlagKind(flag.kind).accepts is accepted]
        return min(fit, key=lambda flag: not flag.acknowledged, default=None)
