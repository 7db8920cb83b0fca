"""The states of jobs, chunks, attempts, devices, flags, webhooks and deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobKind(StrEnum):
    """The kind of work that a job does."""

    seeds = "seeds"  # runs a test on one build, seed by seed; people call this a job
    # Runs a gauge. It shares all tables with other jobs except the results; job lists hide it.
    gauge = "gauge"
    # Holds a run that happened elsewhere, read from a file. It is created finished, without chunks.
    import_ = "import"


LISTED_KINDS = (JobKind.seeds, JobKind.import_)
"""The jobs with test results: lists show them, and histories and roll-ups count them."""
IMPORT_EXECUTOR = "import"
"""Stands for the executor of an imported job. No worker has it, and no job may request it."""


class JobState(StrEnum):
    """The state of a job; the last three are final."""

    queued = "queued"  # stored; no worker has started a chunk yet
    running = "running"  # a worker has started at least one chunk
    cancelling = "cancelling"  # someone cancelled it; the running attempts are being stopped
    # Every (seed, repeat) that the job needed has a result. A sequential job may need fewer.
    finished = "finished"
    # Stopped on request. Some seeds have no result, so its verdict is never green.
    cancelled = "cancelled"
    failed = "failed"  # could not run (its queue deadline passed); says nothing about the kernel

    @property
    def final(self) -> bool:
        """Return whether the job can no longer change."""
        return self in {JobState.finished, JobState.cancelled, JobState.failed}


class RunState(StrEnum):
    """The state of a run (one submission of a suite); the last two are final."""

    running = "running"  # at least one of its jobs has not ended
    cancelling = "cancelling"  # someone cancelled it; its running jobs are being stopped
    finished = "finished"  # all its jobs have ended; its verdict is their worst one
    cancelled = "cancelled"  # stopped on request; its verdict is never green

    @property
    def final(self) -> bool:
        """Return whether the run can no longer change."""
        return self in {RunState.finished, RunState.cancelled}


class BisectionState(StrEnum):
    """The state of a bisection; all but the first are final."""

    running = "running"  # its probes run, one after another or in parallel
    finished = "finished"  # it has an answer, or used up its runs; the conclusion says which
    cancelled = "cancelled"  # stopped on request
    failed = "failed"  # a probe could not run; says nothing about the builds

    @property
    def final(self) -> bool:
        """Return whether the bisection can no longer change."""
        return self is not BisectionState.running


class DueOutcome(StrEnum):
    """The outcome of a due time of a schedule."""

    submitted = "submitted"  # a run was created
    # The schedule's previous run was still open, and the overlap policy is to skip.
    skipped = "skipped"
    failed = "failed"  # the suite could not be submitted; the reason says why


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


class WorkerState(StrEnum):
    """The state of a worker, from its last heartbeat."""

    idle = "idle"  # online, runs nothing
    busy = "busy"  # runs an attempt
    offline = "offline"  # no heartbeat for longer than the timeout


class DeviceState(StrEnum):
    """The state of a device, from its worker's last heartbeat."""

    idle = "idle"  # its worker is online and runs nothing on it
    busy = "busy"  # an attempt runs on it
    offline = "offline"  # no heartbeat of its worker for longer than the timeout


class DeviceHealth(StrEnum):
    """The health of a device; one that is bad or in maintenance gets no work."""

    good = "good"  # its last canary passed
    suspect = "suspect"  # most unrelated tests fail on it but not on other devices
    bad = "bad"  # its canary failed after every recovery step; it tests itself again
    maintenance = "maintenance"  # a person took it out of service


class CanaryOutcome(StrEnum):
    """The outcome of a canary: whether it passed, and how its bits compare with other devices."""

    golden = "golden"  # passed, with the bits that two devices agree on
    first = "first"  # passed, with bits that no second device has confirmed yet
    differs = "differs"  # passed, with other bits than the golden ones
    failed = "failed"  # did not pass, or gave no result


class WebhookState(StrEnum):
    """The state of a webhook subscription."""

    active = "active"  # it gets messages
    disabled = "disabled"  # a person disabled it, or its receiver answered 410 (gone)


class DeliveryState(StrEnum):
    """The state of a message to a webhook; all but the first are final."""

    waiting = "waiting"  # it will be tried, or retried
    delivered = "delivered"  # the receiver accepted it
    failed = "failed"  # the last try failed; it can be replayed
    cancelled = "cancelled"  # its subscription was disabled first


class HookSource(StrEnum):
    """The source of an incoming delivery."""

    github = "github"  # POST /hooks/github
    ci = "ci"  # POST /hooks/ci, signed according to Standard Webhooks
    # An open pull request of a pushed commit, found by asking GitHub because no delivery named it.
    pull_request_lookup = "asked"


class IncomingState(StrEnum):
    """The state of an incoming delivery; all but the first are final."""

    waiting = "waiting"  # stored as received; the background will process it
    started = "started"  # at least one rule started something
    ignored = "ignored"  # it needs no action; the reason says why
    failed = "failed"  # rules matched but none could start anything, or its body is invalid


class AnswerState(StrEnum):
    """The state of our report to GitHub about a commit check; the last three are final."""

    waiting = "waiting"  # nothing is reported yet
    pending = "pending"  # GitHub knows that it runs
    reported = "told"  # GitHub knows the result
    failed = "failed"  # GitHub was unreachable or refused the report; it can be retried
    superseded = "superseded"  # the same check was requested again; the newer answer counts
