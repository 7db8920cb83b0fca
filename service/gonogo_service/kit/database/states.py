"""The states of jobs, chunks, attempts, devices, flags, webhooks and deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict


class JobKind(StrEnum):
    """The kind of work that a job does."""

    seeds = "seeds"  # runs a test on one build, seed by seed; people call this a job
    # Runs a gauge. It shares all tables with other jobs except the results; job lists hide it.
    gauge = "gauge"
    # Holds a run that happened elsewhere, read from a file. It is created finished, without chunks.
    import_ = "import"


LISTED_KINDS = (JobKind.seeds, JobKind.import_)
"""The jobs with test results: lists show them, and histories and sums count them."""
IMPORT_EXECUTOR = "import"
"""Stands for the executor of an imported job. No worker has it, and no job may request it."""


class JobState(Described):
    """The state of a job; the last three are final."""

    queued = "queued", "Stored, and no worker has started it yet."
    running = "running", "Workers run it now."
    cancelling = (
        "cancelling",
        "Somebody canceled it; the parts that run now still have to stop.",
        "Canceling",
    )
    # Every (seed, repeat) that the job needed has a result. A sequential job may need fewer.
    finished = "finished", "It ran to its end."
    # Some seeds have no result, so its verdict is never green.
    cancelled = "cancelled", "Somebody canceled it before its end.", "Canceled"
    # such as when its queue deadline passed; says nothing about the kernel
    failed = "failed", "It could not run; its error says why.", "Could not run"

    @property
    def final(self) -> bool:
        """Return whether the job can no longer change."""
        return self in {JobState.finished, JobState.cancelled, JobState.failed}


FINAL_JOB = tuple(state for state in JobState if state.final)


class RunState(Described):
    """The state of a run (one submission of a suite); the last two are final."""

    running = "running", "At least one of its jobs has not ended."
    cancelling = "cancelling", "Somebody canceled it; its running jobs still stop.", "Canceling"
    finished = "finished", "All its jobs have ended; its verdict is their worst one."
    cancelled = "cancelled", "Stopped on request; its verdict is never green.", "Canceled"

    @property
    def final(self) -> bool:
        """Return whether the run can no longer change."""
        return self in {RunState.finished, RunState.cancelled}


class BisectionState(Described):
    """The state of a bisection; all but the first are final."""

    running = "running", "Its probes run, one after another or in parallel.", "Searching"
    finished = "finished", "It has an answer, or used up its runs; the conclusion says which."
    cancelled = "cancelled", "Stopped on request.", "Canceled"
    failed = "failed", "A probe could not run; says nothing about the builds.", "Could not run"

    @property
    def final(self) -> bool:
        """Return whether the bisection can no longer change."""
        return self is not BisectionState.running


class DueOutcome(Described):
    """The outcome of a due time of a schedule."""

    submitted = "submitted", "A run was created."
    skipped = "skipped", "The schedule's previous run was still open."
    failed = (
        "failed",
        "The suite could not be submitted; the reason says why.",
        "Could not be submitted",
    )


class ChunkState(StrEnum):
    """The state of a chunk (the unit that one attempt runs); the last two are closed."""

    waiting = "waiting"  # only in the database; the dispatcher may send it
    sent = "sent"  # its current attempt is on the way to a worker
    running = "running"  # a worker reported that it started the current attempt
    # It still runs, but the job no longer needs it: results missing at its end are not retried.
    stopping = "stopping"
    done = "done"  # every (seed, repeat) of it has a result
    # Closed with missing results: cancelled, failed, or given up after its last attempt.
    lost = "lost"


CLOSED_CHUNK = (ChunkState.done, ChunkState.lost)


@dataclass(frozen=True)
class ChunkCounts:
    """The chunks of a job or a gauge: all, and those that haven't ended."""

    total: int
    open: int


class AttemptState(StrEnum):
    """The state of one attempt of a chunk; a retry is a new attempt."""

    sent = "sent"  # stored; published to the queue as soon as the broker accepts it
    running = "running"  # a worker started it and sends heartbeats
    reported = "reported"  # the worker sent "finished", but some batches are still on the way
    done = "done"  # finished; everything that the worker sent is stored
    lost = "lost"  # no heartbeat, or its message vanished; late results are still stored
    cancelled = "cancelled"  # stopped on request
    # The worker stopped, or its device went bad; it doesn't count against the chunk.
    handed_back = "handed_back"
    error = "error"  # the worker could not run it


OPEN_ATTEMPT = (AttemptState.sent, AttemptState.running, AttemptState.reported)


class DeviceState(Described):
    """The state of a device, from its worker's last heartbeat."""

    idle = "idle", "Its worker is alive and runs nothing on it."
    busy = "busy", "Its worker runs something on it."
    offline = "offline", "Its worker has sent no heartbeat for a while."


class DeviceHealth(Described):
    """The health of a device; one that is bad or in maintenance gets no work."""

    good = "good", "Its last canary passed.", "", Verdict.pass_
    suspect = (
        "suspect",
        "It differs from other devices: most tests fail only here, or its canary has other bits."
        " It still takes work.",
        "",
        Verdict.suspect,
    )
    bad = "bad", "Its canary fails. It takes no work and tests itself again.", "", Verdict.fail
    maintenance = (
        "maintenance",
        "A person uses it. Nothing runs on it.",
        "",
        Verdict.not_judged,
    )


class CanaryOutcome(Described):
    """The outcome of a canary: whether it passed, and how its bits compare with other devices."""

    golden = (
        "golden",
        "same bits as on other devices of its host",
        "same bits as on other devices",
        Verdict.pass_,
    )
    first = (
        "first",
        "bits known from one device of its host only",
        "bits known from one device only",
        Verdict.inconclusive,
    )
    differs = (
        "differs",
        "bits differ from the golden ones of its host",
        "other bits than the golden ones",
        Verdict.suspect,
    )
    failed = "failed", "it did not pass, or gave no result", "failed", Verdict.fail


class WebhookState(StrEnum):
    """The state of a webhook subscription."""

    active = "active"  # it gets messages
    disabled = "disabled"  # a person disabled it, or its receiver answered 410 (gone)


class WebhookKind(Described):
    """Who reads the messages of a webhook."""

    standard = "standard", "For programs.", "Standard Webhooks, signed"
    message = "message", "A line to people, in a chat or by mail.", "Message to people"


class DeliveryState(Described):
    """The state of a message to a webhook; all but the first are final."""

    waiting = "waiting", "It will be tried, or retried.", "Waiting", Verdict.inconclusive
    delivered = "delivered", "The receiver accepted it.", "Delivered", Verdict.pass_
    failed = "failed", "The last try failed; it can be replayed.", "Gave up", Verdict.fail
    cancelled = (
        "cancelled",
        "Its subscription was disabled first.",
        "Canceled",
        Verdict.not_judged,
    )


class HookSource(Described):
    """The source of an incoming delivery."""

    github = "github", "POST /hooks/github", "GitHub"
    ci = "ci", "POST /hooks/ci, signed according to Standard Webhooks", "Another CI system"
    pull_request_lookup = (
        "asked",
        "An open pull request of a pushed commit, which no delivery named.",
        "Looked up at GitHub",
    )


class IncomingState(Described):
    """The state of an incoming delivery; all but the first are final."""

    waiting = "waiting", "Stored as received, not processed yet.", "Waiting", Verdict.inconclusive
    started = "started", "At least one rule started something.", "Started something", Verdict.pass_
    ignored = "ignored", "It needs no action; the reason says why.", "Ignored", Verdict.skipped
    failed = (
        "failed",
        "Rules matched but none could start anything, or its body is invalid.",
        "Could not start",
        Verdict.fail,
    )


class AnswerState(Described):
    """The state of our report to GitHub about a commit check; the last three are final."""

    waiting = "waiting", "Nothing is reported yet.", "Not reported yet", Verdict.inconclusive
    pending = "pending", "GitHub knows that it runs.", "Reported as running", Verdict.inconclusive
    reported = "told", "GitHub knows the result.", "Reported", Verdict.pass_
    failed = (
        "failed",
        "GitHub was unreachable or refused the report; it can be retried.",
        "Gave up",
        Verdict.fail,
    )
    superseded = (
        "superseded",
        "The same check was requested again; the newer answer counts.",
        "Requested again",
        Verdict.not_judged,
    )
