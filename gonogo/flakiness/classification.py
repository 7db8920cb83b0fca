"""Classify a test on a commit for CI: head against base, each kind of failure by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gonogo.flakiness import arithmetic_changes
from gonogo.flakiness.classes import (
    FLICKERS,
    HANGS,
    HOLLOWS,
    LOST,
    TOO_TIGHT,
    Class,
    Classification,
    Finding,
    OpenFlag,
    RunSummary,
)
from gonogo.flakiness.masking import BuildChange, Change, compare_builds
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import fisher
from gonogo.spec.verdicts import Verdict


def classify(
    base: RunSummary | None,
    head: RunSummary | None,
    flags: Sequence[OpenFlag] = (),
    policy: FlakinessPolicy = POLICY,
) -> Classification:
    """Return how a test changed from base to head, with the evidence.

    See 4-flakiness.md, "Classifying a commit's failures for CI". Head's runs are split by their
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
    change = (
        compare_builds(before.record, head.record, policy)
        if before.record and head.record
        else None
    )
    case = _Case(before, head, tuple(flags), change, policy)
    parts = [case.waiting(), *case.lost(), case.red(), case.false_alarm(), case.hollow()]
    findings = [part for part in parts if part is not None] or [case.good()]
    if (arithmetic := case.arithmetic()) is not None:
        nothing_new = findings[0].kind is Class.passed and not findings[0].evidence
        findings = [arithmetic] if nothing_new else [*findings, arithmetic]
    return Classification(
        tuple(sorted(findings, key=lambda finding: (finding.kind.rank, finding.verdict.rank)))
    )


@dataclass(frozen=True)
class _Case:
    base: RunSummary
    head: RunSummary
    flags: tuple[OpenFlag, ...]
    change: BuildChange | None
    policy: FlakinessPolicy

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
            flag = self._flag(HANGS if verdict is Verdict.hang else frozenset())
            evidence = {"head": number, "base": before, **_flagged(flag)}
            if flag is not None and flag.acknowledged:
                yield Finding(Class.waived, verdict, f"{words}; {_owned(flag)}", False, evidence)
            else:
                there = f"; on base, too: {before}" if before else ""
                new = not before and flag is None and bool(self.base.answered)
                yield Finding(Class.infrastructure, verdict, words + there, new, evidence)
        if self.head.sick:
            named = ", ".join(
                f"{number} on {device}" for device, number in sorted(self.head.sick.items())
            )
            words = f"left out, because the device was sick: {named}"
            yield Finding(
                Class.infrastructure, Verdict.error, words, False, {"sick": dict(self.head.sick)}
            )
        if self.head.ended_empty and not self.head.answered and not self.head.waiting:
            words = "ended without a result: " + ", ".join(
                f"{number} {why}" for why, number in sorted(self.head.ended_empty.items())
            )
            yield Finding(
                Class.infrastructure,
                Verdict.error,
                words,
                False,
                {"ended_empty": dict(self.head.ended_empty)},
            )

    def red(self) -> Finding | None:
        """Return the finding of red runs that are wrong or have no arrays."""
        base, head = self.base, self.head
        if not head.red:
            return None
        verdict = Verdict.fail if head.of(Verdict.fail) else Verdict.not_judged
        p = self._worse(base.red, head.red)
        evidence = self._evidence(base.red, head.red, p)
        words = f"red {head.red} of {head.answered}"
        flag = self._flag(FLICKERS)
        evidence |= _flagged(flag)
        if flag is not None and flag.acknowledged:
            return Finding(Class.waived, verdict, f"{words}; {_owned(flag)}", False, evidence)
        # A fault that base hides behind its tolerance is not new in this commit: stored numbers
        # beat red and green.
        hidden = self._same() is True and bool(base.of(Verdict.pass_by_tolerance))
        wrong = (
            base.red + base.of(Verdict.pass_by_tolerance),
            head.red + head.of(Verdict.pass_by_tolerance),
        )
        if (base.red or hidden) and self._same() is not False and self._worse(*wrong) is None:
            there = f"on base {base.share(base.red, self.policy).words}"
            how = there if base.red else "on base the same error, hidden by the tolerance"
            return Finding(
                Class.broken_on_base, verdict, f"{words}; {how}{self._why()}", False, evidence
            )
        if flag is not None and p is None:
            return Finding(Class.known_flaky, verdict, f"{words}; {_named(flag)}", False, evidence)
        if not base.answered:
            return Finding(Class.unknown, verdict, f"{words}; {self._silent()}", False, evidence)
        if base.red:
            less = f"red on base, too, but less often: {base.share(base.red, self.policy).words}"
            how = "red on base, too, with another error" if self._same() is False else less
        elif base.of(Verdict.fail_by_tolerance):
            right = base.share(base.of(Verdict.fail_by_tolerance), self.policy)
            how = f"base was red, too, and right: {right.words}"
        else:
            how = f"none of {base.answered} on base"
        worse = f"; worse than {_named(flag)} can account for" if flag is not None else ""
        return Finding(
            Class.new_failure, verdict, f"{words}; {how}{worse}{self._why()}", True, evidence
        )

    def false_alarm(self) -> Finding | None:
        """Return the finding of red runs that rounding explains.

        The tolerance is to blame, even if another commit tightened it.
        """
        verdict = Verdict.fail_by_tolerance
        number, before = self.head.of(verdict), self.base.of(verdict)
        if not number:
            return None
        flag = self._flag(TOO_TIGHT)
        evidence = {**self._evidence(before, number, self._worse(before, number)), **_flagged(flag)}
        words = f"red though right {number} of {self.head.answered}"
        if flag is not None and flag.acknowledged:
            return Finding(Class.waived, verdict, f"{words}; {_owned(flag)}", False, evidence)
        new = bool(self.base.answered) and not before
        there = (
            f"; on base {self.base.share(before, self.policy).words}"
            if self.base.answered
            else f"; {self._silent()}"
        )
        return Finding(Class.false_alarm, verdict, words + there, new, evidence)

    def hollow(self) -> Finding | None:
        """Return the finding of green runs that rounding doesn't explain."""
        base, head, verdict = self.base, self.head, Verdict.pass_by_tolerance
        number, before = head.of(verdict), base.of(verdict)
        if not number:
            return None
        evidence = self._evidence(before, number, self._worse(before, number))
        words = f"green and unexplained {number} of {head.answered}"
        flag = self._flag(HOLLOWS)
        evidence |= _flagged(flag)
        if flag is not None and flag.acknowledged:
            return Finding(Class.waived, verdict, f"{words}; {_owned(flag)}", False, evidence)
        wrong = base.red + before, head.red + number
        if before and self._same() is not False and self._worse(*wrong) is None:
            there = f"on base {base.share(before, self.policy).words}"
            return Finding(
                Class.known_hollow, verdict, f"{words}; {there}{self._why()}", False, evidence
            )
        # One rare hollow seed under an old flag is nothing new. But where every seed of base was
        # explained and none of head is, a flag that has not expired yet must not hide that the
        # fault came back.
        back = base.judged and not base.red and not before and head.judged == head.red + number
        if flag is not None and not before and not base.red and not back and evidence["p"] is None:
            return Finding(Class.known_hollow, verdict, f"{words}; {_named(flag)}", False, evidence)
        if not base.judged:
            why = "base has no arrays to judge" if base.answered else self._silent()
            return Finding(Class.unknown, verdict, f"{words}; {why}", False, evidence)
        if before:
            how = (
                "with another error than on base"
                if self._same() is False
                else f"on base {base.share(before, self.policy).words}"
            )
        elif base.red:
            how = (
                "red on base, and the same error stays: masked, not fixed"
                if self._same()
                else "red on base"
            )
        else:
            how = f"none of {base.judged} on base"
        return Finding(
            Class.new_hollow_pass, verdict, f"{words}; {how}{self._why()}", True, evidence
        )

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
            unsure = [
                verdict
                for verdict in (
                    Verdict.suspect,
                    Verdict.inconclusive,
                    Verdict.skipped,
                    Verdict.not_run,
                )
                if head.of(verdict)
            ]
            verdict = unsure[0] if unsure else Verdict.not_run
            kind = (
                Class.undecided
                if verdict in (Verdict.suspect, Verdict.inconclusive)
                else Class.not_run
            )
            return Finding(
                kind,
                verdict,
                f"{head.of(verdict)} of {sum(head.counts.values())} runs: {verdict.value}",
                False,
            )
        verdict = Verdict.not_judged if head.of(Verdict.not_judged) else Verdict.pass_
        words = f"green {head.answered} of {head.answered}" + (
            "" if verdict is Verdict.pass_ else ", without arrays to judge"
        )
        red, hollow = (
            base.red + base.of(Verdict.fail_by_tolerance),
            base.of(Verdict.pass_by_tolerance),
        )
        if not red and not (hollow and head.judged):
            return Finding(Class.passed, verdict, words, False)
        evidence = self._evidence(red or hollow, 0, None)
        if red:
            flag = self._flag(FLICKERS)
            if (
                flag is not None
                and fisher(0, head.answered, red, base.answered) > self.policy.significance
            ):
                words = f"{words}; {_named(flag)}: too few seeds to call it fixed"
                return Finding(Class.passed, verdict, words, False, {**evidence, **_flagged(flag)})
            return Finding(
                Class.fixed,
                verdict,
                f"{words}; red on base {base.share(red, self.policy).words}{self._why()}",
                False,
                evidence,
            )
        there = f"green and unexplained on base {base.share(hollow, self.policy).words}"
        return Finding(
            Class.no_longer_hollow, verdict, f"{words}; {there}{self._why()}", False, evidence
        )

    def _evidence(self, before: int, number: int, p: float | None) -> dict[str, Any]:
        """Return both rates, p where head is worse, and the comparison of the errors."""
        head = self.head.share(number, self.policy)
        there = self.base.share(before, self.policy) if self.base.answered else None
        evidence: dict[str, Any] = {
            "head": asdict(head),
            "base": None if there is None else asdict(there),
            "p": p,
            "policy": self.policy.version,
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
        return p if p < self.policy.significance else None

    def _same(self) -> bool | None:
        """Return whether head has the same error as base; None if their numbers can't tell.

        They can't where there are no arrays, or nothing is finite.
        """
        if self.change is None or self.change.change is Change.unknown:
            return None
        if self.change.change in (Change.still_wrong, Change.fix_masked, Change.unchanged):
            return True
        return (
            None
            if self.change.change is Change.wrong_otherwise and not self.change.differing
            else False
        )

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


def _flagged(flag: OpenFlag | None) -> dict[str, Any]:
    return {} if flag is None else {"flag": asdict(flag)}


def _named(flag: OpenFlag) -> str:
    return f"open flag {flag.kind}"


def _owned(flag: OpenFlag) -> str:
    until = f" until {flag.expires}" if flag.expires else ""
    owner, reason = flag.owner or "someone", flag.reason or "no reason given"
    return f"flag {flag.kind}, acknowledged by {owner}{until}: {reason}"
