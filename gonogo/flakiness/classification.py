"""Classify a test on a commit for CI: head against base, each kind of failure by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gonogo.flakiness import arithmetic_changes
from gonogo.flakiness.classes import (
    FLICKERS,
    HOLLOWS,
    LOST,
    LOST_FLAGS,
    TOO_TIGHT,
    Class,
    Classification,
    Finding,
    OpenFlag,
    RunSummary,
)
from gonogo.flakiness.masking import BuildChange, Change, compare_builds
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import fisher
from gonogo.spec.verdicts import Verdict

UNSURE = (Verdict.suspect, Verdict.inconclusive, Verdict.skipped, Verdict.not_run)
"""Verdicts of runs that are neither green nor red, or not for certain; the first two are judged."""


def classify(
    base: RunSummary | None, head: RunSummary | None, flags: Sequence[OpenFlag] = ()
) -> Classification:
    """Return how a test changed from base to head, with the evidence.

    Head's runs are split by their
    results: lost (hang, crash, error), red, false alarm, green and hollow. Each part is decided
    by itself, so a crashed seed hides no red one, and a known red hides no new hollow pass: waived
    -> infrastructure -> broken on base -> known flaky (or known hollow) -> unknown -> new. If there
    is no such part, the news is good: fixed, no longer hollow, passed. Raises ValueError if the
    test ran on neither side.

    flags: those that were opened before head ran, or that someone acknowledged.
    """
    if base is None and head is None:
        raise ValueError("a test needs results on base or head to have a class")
    before = base or RunSummary("")
    if head is None or not (head.counts or head.sick or head.waiting or head.ended_empty):
        words = f"{before.answered} runs on {before.build}, none on head"
        return Classification(
            (Finding(Class.not_run, Verdict.not_run, words, False, {"base": asdict(before.shown)}),)
        )
    change = None
    if before.record and head.record:
        change = compare_builds(before.record, head.record)
    case = _Case(before, head, tuple(flags), change)
    parts = [case.waiting(), *case.lost(), case.red(), case.false_alarm(), case.hollow()]
    findings = [part for part in parts if part is not None] or [case.good()]
    if (arithmetic := case.arithmetic()) is not None:
        nothing_new = findings[0].kind is Class.passed and not findings[0].evidence
        findings = [arithmetic] if nothing_new else [*findings, arithmetic]
    return Classification(
        tuple(sorted(findings, key=lambda finding: (finding.kind.rank, finding.verdict.rank)))
    )


@dataclass(frozen=True)
class _Part:
    """Some results of head: their words and evidence, and the flag that may cover them."""

    verdict: Verdict
    words: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    flag: OpenFlag | None = None

    def finding(self, kind: Class, why: str = "", *, new: bool = False) -> Finding:
        """Return the finding of these results. why: the end of its words."""
        words = f"{self.words}; {why}" if why else self.words
        flagged = {} if self.flag is None else {"flag": asdict(self.flag)}
        return Finding(kind, self.verdict, words, new, {**self.evidence, **flagged})

    @property
    def waived(self) -> Finding | None:
        """The finding where someone acknowledged the flag."""
        if self.flag is None or not self.flag.acknowledged:
            return None
        until = f" until {self.flag.expires}" if self.flag.expires else ""
        owner, reason = self.flag.owner or "someone", self.flag.reason or "no reason given"
        return self.finding(
            Class.waived, f"flag {self.flag.kind}, acknowledged by {owner}{until}: {reason}"
        )

    @property
    def flagged(self) -> str:
        """The flag in words."""
        return "" if self.flag is None else f"open flag {self.flag.kind}"


@dataclass(frozen=True)
class _Case:
    base: RunSummary
    head: RunSummary
    flags: tuple[OpenFlag, ...]
    change: BuildChange | None

    def waiting(self) -> Finding | None:
        if not self.head.waiting:
            return None
        jobs = f"{self.head.waiting} job{'' if self.head.waiting == 1 else 's'}"
        return Finding(Class.pending, Verdict.inconclusive, f"{jobs} of head not finished", False)

    def lost(self) -> Iterable[Finding]:
        """Yield a finding for each verdict of lost runs: hangs, crashes and errors.

        Runs on sick devices and jobs that ended without a result are findings, too.
        """
        for verdict in LOST:
            number, before = self.head.of(verdict), self.base.of(verdict)
            if not number:
                continue
            words = f"{number} of {sum(self.head.counts.values())} runs: {verdict.value}"
            flag = self._flag(LOST_FLAGS.get(verdict, frozenset()))
            part = _Part(verdict, words, {"head": number, "base": before}, flag)
            there = f"on base, too: {before}" if before else ""
            new = not before and flag is None and bool(self.base.answered)
            yield part.waived or part.finding(Class.infrastructure, there, new=new)
        sick, empty = self.head.sick, self.head.ended_empty
        if sick:
            named = ", ".join(f"{number} on {device}" for device, number in sorted(sick.items()))
            words = f"left out, because the device was sick: {named}"
            yield _Part(Verdict.error, words, {"sick": dict(sick)}).finding(Class.infrastructure)
        if empty and not self.head.answered and not self.head.waiting:
            reasons = ", ".join(f"{number} {why}" for why, number in sorted(empty.items()))
            part = _Part(
                Verdict.error, f"ended without a result: {reasons}", {"ended_empty": dict(empty)}
            )
            yield part.finding(Class.infrastructure)

    def red(self) -> Finding | None:
        """Return the finding of red runs that are wrong or have no arrays."""
        base, head = self.base, self.head
        if not head.red:
            return None
        verdict = Verdict.fail if head.of(Verdict.fail) else Verdict.not_judged
        p = self._worse(base.red, head.red)
        evidence, flag = self._evidence(base.red, head.red, p), self._flag(FLICKERS)
        part = _Part(verdict, f"red {head.red} of {head.answered}", evidence, flag)
        if part.waived:
            return part.waived
        # A fault that base hides behind its tolerance is not new in this commit: stored numbers
        # beat red and green.
        hollow = base.of(Verdict.pass_by_tolerance)
        hidden = self._same() is True and bool(hollow)
        wrong = base.red + hollow, head.red + head.of(Verdict.pass_by_tolerance)
        if (base.red or hidden) and self._same() is not False and self._worse(*wrong) is None:
            how = "on base the same error, hidden by the tolerance"
            how = f"on base {self._on_base(base.red)}" if base.red else how
            return part.finding(Class.broken_on_base, how + self._why())
        if flag is not None and p is None:
            return part.finding(Class.known_flaky, part.flagged)
        if not base.answered:
            return part.finding(Class.unknown, self._silent())
        right = base.of(Verdict.fail_by_tolerance)
        if base.red and self._same() is False:
            how = "red on base, too, with another error"
        elif base.red:
            how = f"red on base, too, but less often: {self._on_base(base.red)}"
        elif right:
            how = f"base was red, too, and right: {self._on_base(right)}"
        else:
            how = f"none of {base.answered} on base"
        worse = f"; worse than {part.flagged} can account for" if flag is not None else ""
        return part.finding(Class.new_failure, f"{how}{worse}{self._why()}", new=True)

    def false_alarm(self) -> Finding | None:
        """Return the finding of red runs that rounding explains.

        The tolerance is to blame, even if another commit tightened it.
        """
        verdict = Verdict.fail_by_tolerance
        number, before = self.head.of(verdict), self.base.of(verdict)
        if not number:
            return None
        words = f"red though right {number} of {self.head.answered}"
        evidence = self._evidence(before, number, self._worse(before, number))
        part = _Part(verdict, words, evidence, self._flag(TOO_TIGHT))
        answered = bool(self.base.answered)
        there = f"on base {self._on_base(before)}" if answered else self._silent()
        new = answered and not before
        return part.waived or part.finding(Class.false_alarm, there, new=new)

    def hollow(self) -> Finding | None:
        """Return the finding of green runs that rounding doesn't explain."""
        base, head, verdict = self.base, self.head, Verdict.pass_by_tolerance
        number, before = head.of(verdict), base.of(verdict)
        if not number:
            return None
        p = self._worse(before, number)
        evidence, flag = self._evidence(before, number, p), self._flag(HOLLOWS)
        words = f"green and unexplained {number} of {head.answered}"
        part = _Part(verdict, words, evidence, flag)
        if part.waived:
            return part.waived
        wrong = base.red + before, head.red + number
        there = f"on base {self._on_base(before)}" if before else ""
        if before and self._same() is not False and self._worse(*wrong) is None:
            return part.finding(Class.known_hollow, there + self._why())
        # One rare hollow seed under an old flag is nothing new. But where every seed of base was
        # explained and none of head is, a flag that has not expired yet must not hide that the
        # fault came back.
        back = base.judged and not base.red and not before and head.judged == head.red + number
        if flag is not None and not before and not base.red and not back and p is None:
            return part.finding(Class.known_hollow, part.flagged)
        if not base.judged:
            why = "base has no arrays to judge" if base.answered else self._silent()
            return part.finding(Class.unknown, why)
        if before:
            how = "with another error than on base" if self._same() is False else there
        elif base.red:
            masked = "red on base, and the same error stays: masked, not fixed"
            how = masked if self._same() else "red on base"
        else:
            how = f"none of {base.judged} on base"
        return part.finding(Class.new_hollow_pass, how + self._why(), new=True)

    def arithmetic(self) -> Finding | None:
        """Return the finding of outputs that are explained by another arithmetic than on base."""
        if self.base.programs is None or self.head.programs is None:
            return None
        changed = arithmetic_changes.changes(self.head.programs, [self.base.programs])
        if not changed:
            return None
        return Finding(
            Class.arithmetic_changed,
            Verdict.pass_,
            arithmetic_changes.words(changed),
            True,
            {"arithmetic": [asdict(change) for change in changed]},
        )

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
        hollow = base.of(Verdict.pass_by_tolerance)
        if not red and not (hollow and head.judged):
            return Finding(Class.passed, verdict, words, False)
        evidence = self._evidence(red or hollow, 0, None)
        if not red:
            there = f"green and unexplained on base {self._on_base(hollow)}"
            part = _Part(verdict, words, evidence)
            return part.finding(Class.no_longer_hollow, there + self._why())
        flag = self._flag(FLICKERS)
        p = fisher(0, head.answered, red, base.answered)
        if flag is not None and p > POLICY.significance:
            part = _Part(verdict, words, evidence, flag)
            return part.finding(Class.passed, f"{part.flagged}: too few seeds to call it fixed")
        there = f"red on base {self._on_base(red)}"
        return _Part(verdict, words, evidence).finding(Class.fixed, there + self._why())

    def _on_base(self, number: int) -> str:
        return self.base.share(number).words

    def _evidence(self, before: int, number: int, p: float | None) -> dict[str, Any]:
        """Return both rates, p where head is worse, and the comparison of the errors."""
        head = self.head.share(number)
        there = self.base.share(before) if self.base.answered else None
        evidence: dict[str, Any] = {
            "head": asdict(head),
            "base": None if there is None else asdict(there),
            "p": p,
            "policy": POLICY.version,
        }
        if self.change is not None:
            evidence["change"] = asdict(self.change)
        return evidence

    def _worse(self, before: int, number: int) -> float | None:
        """Return Fisher's p if head has significantly more of it than base; else None."""
        runs, others = self.head.answered, self.base.answered
        if not others or not runs or number * others <= before * runs:
            return None
        p = fisher(number, runs, before, others)
        return p if p < POLICY.significance else None

    def _same(self) -> bool | None:
        """Return whether head has the same error as base; None if their numbers can't tell.

        They can't where there are no arrays, or nothing is finite.
        """
        change = self.change
        if change is None or change.change is Change.unknown:
            return None
        if change.change in (Change.still_wrong, Change.fix_masked, Change.unchanged):
            return True
        is_unnamed = change.change is Change.wrong_otherwise and not change.differing
        return None if is_unnamed else False

    def _silent(self) -> str:
        """Return why base has no result."""
        if self.base.waiting:
            return "base has not finished"
        return (
            "base gave no answer"
            if self.base.counts or self.base.sick or self.base.ended_empty
            else "base was not run"
        )

    def _why(self) -> str:
        """Return the result of comparing the errors, for the end of a sentence."""
        if self.change is None or self.change.change is Change.unknown:
            return ""
        by = f", by {self.change.by}" if self.change.by in ("digests", "faults", "places") else ""
        sentence = self.change.change.sentence.removesuffix(".")
        return f" ({sentence[0].lower()}{sentence[1:]}{by})"

    def _flag(self, kinds: frozenset[str]) -> OpenFlag | None:
        """Return an open flag of these kinds; acknowledged flags come first."""
        fit = [flag for flag in self.flags if flag.kind in kinds]
        return min(fit, key=lambda flag: not flag.acknowledged, default=None)
