"""The states of jobs, chunks, attempts, workers and flags, a sentence each."""

from __future__ import annotations

from enum import StrEnum


class JobKind(StrEnum):
    """What the chunks of a job hold."""

    seeds = "seeds"  # a test on one build, seed by seed: what people call a job
    # the runs of a gauge, which share everything but their rows; no list of jobs shows it
    gauge = "gauge"
    # a run that happened elsewhere, read from a file: finished from the start, without chunks
    import_ = "import"


TOLD_KINDS = (JobKind.seeds, JobKind.import_)
"""Jobs whose rows are the results of tests: lists show them, histories and roll-ups count them."""
IMPORT_EXECUTOR = "import"
"""In place of an executor of what was imported: nobody serves it, and no job may ask for it."""


class JobState(StrEnum):
    """Where a job is on its way; the last three are final."""

    queued = "queued"  # stored; no chunk has been started by a worker yet
    running = "running"  # at least one chunk was started
    cancelling = "cancelling"  # someone asked to cancel it; attempts that run are being told
    # every (seed, repeat) has a result, or as many as a decision needed; the verdict says which
    finished = "finished"
    # ended on request; seeds without a result stay without, so it has no verdict that is green
    cancelled = "cancelled"
    failed = "failed"  # could not be run (its queue deadline passed); says nothing about the kernel

    @property
    def final(self) -> bool:
        """Whether nothing can happen to the job any more."""
        return self in {JobState.finished, JobState.cancelled, JobState.failed}


class RunState(StrEnum):
    """Where a run, one submission of a suite, is; the last two are final."""

    running = "running"  # at least one of its jobs has not ended
    cancelling = "cancelling"  # someone asked to cancel it; jobs that run are being told
    finished = "finished"  # all its jobs have ended; the verdict is their worst
    cancelled = "cancelled"  # ended on request; never green

    @property
    def final(self) -> bool:
        """Whether nothing can happen to the run any more."""
        return self in {RunState.finished, RunState.cancelled}


class BisectionState(StrEnum):
    """Where a bisection is; all but the first are final."""

    running = "running"  # its probes run, one after the other or side by side
    finished = "finished"  # it has an answer, or its runs are used up; the conclusion says which
    cancelled = "cancelled"  # ended on request
    failed = "failed"  # a probe could not be run; says nothing about the builds

    @property
    def final(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self is not BisectionState.running


class DueOutcome(StrEnum):
    """What became of a due time of a schedule."""

    submitted = "submitted"  # a run was made
    skipped = (
        "skipped"  # the schedule's run before was still open, and its overlap policy says skip
    )
    failed = "failed"  # the suite could not be submitted; the reason says why


class ChunkState(StrEnum):
    """Where a chunk, the unit that one attempt runs, is; the last two are closed."""

    waiting = "waiting"  # in the database only; the dispatcher may choose it
    sent = "sent"  # its current attempt is on its way to a worker
    running = "running"  # a worker said that it started the current attempt
    # it runs, and the job no longer needs it: what it misses when its attempt ends isn't asked for
    # again
    stopping = "stopping"
    done = "done"  # every (seed, repeat) of it has a result
    # closed without all its results by the kernel: cancelled, failed, or given up after its last
    # attempt
    lost = "lost"


CLOSED_CHUNK = (ChunkState.done, ChunkState.lost)


class AttemptState(StrEnum):
    """What became of one attempt of a chunk; attempts are never used twice."""

    sent = "sent"  # stored, and published to the queue as soon as the broker takes it
    running = "running"  # a worker started it and sends heartbeats
    reported = (
        "reported"  # the worker said "finished", but batches that it sent are still on their way
    )
    done = "done"  # over, everything that the worker sent is stored
    lost = "lost"  # no heartbeat, or its message vanished; late results of it are still taken
    cancelled = "cancelled"  # stopped on request
    handed_back = (
        "handed_back"  # the worker stopped or its device fell ill; not counted against the chunk
    )
    error = "error"  # the worker could not run it


OPEN_ATTEMPT = (AttemptState.sent, AttemptState.running, AttemptState.reported)


class WorkerState(StrEnum):
    """What a worker does, from its last heartbeat."""

    idle = "idle"  # lives, runs nothing
    busy = "busy"  # runs an attempt
    offline = "offline"  # no heartbeat for longer than the timeout


class DeviceState(StrEnum):
    """What a device does, from its worker's last heartbeat."""

    idle = "idle"  # its worker lives and runs nothing on it
    busy = "busy"  # an attempt runs on it
    offline = "offline"  # no worker of it has been heard of for longer than the timeout


class DeviceHealth(StrEnum):
    """What is thought of a device; one that is bad or in maintenance takes no work."""

    good = "good"  # its canary passed when it was last asked
    suspect = "suspect"  # most unrelated tests fail on it and not on others
    bad = "bad"  # the canary failed after everything that was tried; it tests itself again
    maintenance = "maintenance"  # a person has it


class CanaryOutcome(StrEnum):
    """What a canary said of its device, and its bits beside those of the others."""

    golden = "golden"  # passed, with the bits that two devices gave
    first = "first"  # passed, with bits that nobody has confirmed yet
    differs = "differs"  # passed, with other bits than the golden ones
    failed = "failed"  # did not pass, or gave no answer


class FlagState(StrEnum):
    """The life of a finding."""

    open = "open"  # nobody has looked at it
    acknowledged = "acknowledged"  # someone owns it
    resolved = "resolved"  # over
    reopened = "reopened"  # came back after it was resolved


class FlagKind(StrEnum):
    """What a flag says about a test."""

    passes_by_tolerance = "passes_by_tolerance"  # green, though rounding does not explain the error
    tolerance_too_tight = "tolerance_too_tight"  # red, though rounding explains the error
    flaky = "flaky"  # same build, sometimes red
    nondeterministic = "nondeterministic"  # same seed and device, other digests
    device_dependent = "device_dependent"  # same seed, other digests on another device
    context_dependent = "context_dependent"  # depends on what ran before
    latent_flake = "latent_flake"  # predicted to fail now and then
    fix_masked = "fix_masked"  # turned green, and the error signature stayed
    blunt_test = "blunt_test"  # known-wrong kernels pass
    hangs = "hangs"  # some seed never ended


class WaiverState(StrEnum):
    """Whether a waiver does anything; told by the clock whenever it is read."""

    active = "active"  # it waives
    expired = "expired"  # its day came
    ended = "ended"  # a person ended it


class WebhookState(StrEnum):
    """Whether a subscription is told anything."""

    active = "active"  # it is
    disabled = "disabled"  # a person switched it off, or its receiver answered 410 (gone)


class DeliveryState(StrEnum):
    """What became of a message; all but the first are final."""

    waiting = "waiting"  # it will be tried, or tried again
    delivered = "delivered"  # the receiver took it
    failed = "failed"  # the last try failed; it can be replayed
    cancelled = "cancelled"  # its subscription was disabled first


class HookSource(StrEnum):
    """Who sent a delivery."""

    github = "github"  # POST /hooks/github, or fetched by `gonogo hooks catch-up`
    ci = "ci"  # POST /hooks/ci, signed as Standard Webhooks says
    # an open pull request of a pushed commit: GitHub was asked, as nothing had told of it
    asked = "asked"


class InboundState(StrEnum):
    """What became of a delivery that came in; all but the first are final."""

    waiting = "waiting"  # stored as it came; the background works it off
    started = "started"  # at least one rule started something
    ignored = "ignored"  # nothing is to be done about it; the reason says why
    failed = "failed"  # rules fitted, and none could start anything; or it can't be understood


class AnswerState(StrEnum):
    """How far GitHub was told of a workload; the last three are final."""

    waiting = "waiting"  # nothing was told yet
    pending = "pending"  # GitHub knows that it runs
    told = "told"  # GitHub knows what came of it
    failed = "failed"  # GitHub could not be told, or would not listen; it can be tried again
    superseded = "superseded"  # the same was asked for again: the newer answer counts
