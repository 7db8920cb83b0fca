"""The kinds of flags: one row each, which API, pages, messages, comparisons and assessments read.

`gonogo_service.flags.findings` has a function for each kind that builds its evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gonogo.spec.described import Described, Row
from gonogo.spec.verdicts import Verdict


class Accepted(StrEnum):
    """The results that block no commit while somebody acknowledges a flag."""

    red = "red results"
    hollow = "hollow passes"
    false_alarms = "false alarms"
    hangs = "hangs"
    crashes = "crashes"


class Ends(StrEnum):
    """The event that resolves a flag, besides people."""

    quiet = "quiet"  # enough quiet seeds in a row
    ruled_out = "ruled_out"  # also: the factor was looked for since, and not found
    timed = "timed"  # also: its seconds were measured since, and are not longer any more
    robust = "robust"  # also: the tail of the errors stays clear of the tolerance
    gauge = "gauge"  # only a gauge: it measures the test, whatever the build


class FlagStep(StrEnum):
    """A step that the page of a flag offers."""

    seeds = "seeds"  # the worst seeds of the job
    log = "log"
    compare = "compare"  # the two builds
    between = "between"  # bisect between them: it knows verdicts and errors, and no time
    test = "test"
    devices = "devices"
    bisect = "bisect"
    tolerance = "tolerance"  # what a gauge advises, or a gauge


@dataclass(frozen=True)
class _Row(Row):
    """A kind of flag."""

    mark: str = Verdict.suspect
    opens: str = ""
    """When it opens, or is renewed: "when a job ends and ..." (docs/flakiness.md)."""
    advice: str = ""
    verdict: Verdict | None = None
    """The verdict of seeds that are evidence by themselves; None: several seeds are."""
    shape: str = ""
    """The name of its own shape on pages."""
    accepts: Accepted | None = None
    """The results that an acknowledgement accepts; None: the flag blocks no commit."""
    explained_is_quiet: bool = False
    """Whether a red seed is quiet if rounding explains it."""
    needs_numbers: bool = True
    """False if a green iteration of a selection is quiet, as it has no numbers."""
    ends: Ends = Ends.quiet
    steps: tuple[FlagStep, ...] = ()
    """The actions of its page, the most urgent first."""


class FlagKind(Described):
    """The kind of problem that a flag reports about a test.

    The order is that of triage: first tests that are green and wrong, then what costs time on
    devices, then false alarms, then right kernels that compute in another way than before, or
    slower.
    """

    opens: str
    advice: str
    verdict: Verdict | None
    shape: str
    accepts: Accepted | None
    explained_is_quiet: bool
    needs_numbers: bool
    ends: Ends
    steps: tuple[FlagStep, ...]

    # fmt: off
    passes_by_tolerance = _Row("passes_by_tolerance",
        "Passes only by tolerance: rounding doesn't explain the error.", "Hollow pass",
        opens="one of its seeds has that verdict", advice="Fix the kernel, or tighten the"
        " tolerance so that the test turns red until it is fixed.",
        verdict=Verdict.pass_by_tolerance, mark=Verdict.pass_by_tolerance, accepts=Accepted.hollow,
        explained_is_quiet=True, steps=(FlagStep.seeds, FlagStep.tolerance))
    fix_masked = _Row("fix_masked", "It turned green, and the error stayed the same.", "Masked fix",
        opens="the verdict turned green since the build before, and the error stayed the same",
        advice="Look for what changed the timing or the tolerance: the fault is there.",
        shape="fix_masked", accepts=Accepted.hollow, explained_is_quiet=True,
        steps=(FlagStep.compare, FlagStep.between))
    blunt_test = _Row("blunt_test", "Some mutants (known-wrong kernels) pass this test.",
        "Blunt test", opens="a gauge found it",
        advice="Take the tolerance that the gauge advises, or other inputs.", shape="blunt",
        ends=Ends.gauge, steps=(FlagStep.tolerance,))
    hangs = _Row("hangs", "Some seed never ended.", "Hangs",
        opens="one of its seeds hung; see below", advice="Open the job's log, and test the device.",
        verdict=Verdict.hang, mark=Verdict.hang, accepts=Accepted.hangs, explained_is_quiet=True,
        needs_numbers=False, steps=(FlagStep.log, FlagStep.devices))
    crashes = _Row("crashes", "Some seed's process died.", "Crashes",
        opens="one of its seeds' processes died; see below",
        advice="Open the job's log, and test the device.", verdict=Verdict.crash,
        mark=Verdict.crash, accepts=Accepted.crashes, explained_is_quiet=True, needs_numbers=False,
        steps=(FlagStep.log, FlagStep.devices))
    flaky = _Row("flaky", "The same build is sometimes red.", "Flaky",
        opens="its build has green and red seeds, and the job itself has a red one or the first"
        " green ones",
        advice="Open the test: it says whether the seed, the device or the context decides.",
        shape="flaky", accepts=Accepted.red, needs_numbers=False, steps=(FlagStep.test,))
    nondeterministic = _Row("nondeterministic",
        "The same seed on the same device gives other bits.", "Nondeterministic",
        opens="attribution finds this on the build, and the job has seeds that take part",
        advice="Look for a race: the same inputs must give the same bits.", accepts=Accepted.red,
        ends=Ends.ruled_out, steps=(FlagStep.test,))
    device_dependent = _Row("device_dependent", "The same seed gives other bits on another device.",
        "Device-dependent", opens="the same", advice="Test the device that differs, or drain it.",
        accepts=Accepted.red, ends=Ends.ruled_out, steps=(FlagStep.devices,))
    context_dependent = _Row("context_dependent",
        "The outcome depends on what ran before in the same process.", "Context-dependent",
        opens="the same", advice="Run what came before it in the same process, and bisect that.",
        accepts=Accepted.red, needs_numbers=False, ends=Ends.ruled_out, steps=(FlagStep.bisect,))
    latent_flake = _Row("latent_flake",
        "Green so far, but the tail of its errors reaches the tolerance.", "Latent flake",
        opens="the tail predicts more failures than the target, and more than so few distinct"
        " seeds could rule out",
        advice="Raise the tolerance a little, or fix the tail, before it turns red.",
        shape="marginal", accepts=Accepted.red, ends=Ends.robust,
        steps=(FlagStep.test, FlagStep.tolerance))
    tolerance_too_tight = _Row("tolerance_too_tight",
        "The kernel is right, and the tolerance is too tight.", "False alarm",
        opens="one of its seeds has the verdict `fail_by_tolerance`",
        advice="Raise the tolerance to what the formats allow.", verdict=Verdict.fail_by_tolerance,
        mark=Verdict.fail_by_tolerance, accepts=Accepted.false_alarms, steps=(FlagStep.tolerance,))
    arithmetic_changed = _Row("arithmetic_changed",
        "Rounding explains the errors, but in another arithmetic than on earlier builds.",
        "Arithmetic changed", opens="rounding explains an output, in another"
        " [arithmetic](verdicts.md#the-arithmetic) than on earlier builds; see below",
        advice="Acknowledge it where the new arithmetic is intended.", mark=Verdict.not_judged,
        explained_is_quiet=True)
    slower = _Row("slower", "The kernel takes longer on its device than on an earlier build.",
        "Slower", opens="the seconds a seed on its device are longer than on the build before, by"
        " the [limit](#device-time) and more", advice="Compare the builds, or acknowledge it where"
        " the price is intended.", mark=Verdict.not_judged, explained_is_quiet=True,
        ends=Ends.timed, steps=(FlagStep.compare,))
    # fmt: on

    @property
    def of_gauge(self) -> bool:
        """Return whether a gauge finds it, so that it holds for every build."""
        return self.ends is Ends.gauge

    def is_gone(self, build: str, newest: str | None) -> bool:
        """Return whether the newest build doesn't have it any more; `build` is its evidence's."""
        return newest is not None and not self.of_gauge and build != newest

    @classmethod
    def named(cls, text: str) -> FlagKind | None:
        """Return the kind with this value or label, in any case; None for none."""
        name = text.lower()
        return next((kind for kind in cls if name in (kind.value, kind.label.lower())), None)
