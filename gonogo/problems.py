"""The errors of GoNoGo: whose fault something is, drawn as a tree at the top of this file.

GonogoError
├── InfrastructureError      broker, database, device or host: nothing is said about the kernel
├── JobError                 the request can't be done as asked
│   ├── FieldError           one field of the input is wrong: names the field, the value and the limit
│   └── KernelOutputError    what the kernel gave back can't be judged (a shape, a type, a tensor that is missing)
├── KernelFailure            wrong numbers: the only one that feeds flakiness
└── Bug                      ours
"""

from __future__ import annotations

_SHOWN = 80
"""Values are shown up to this many characters: a message must stay one line even for a huge input."""


class GonogoError(Exception):
    """Root of every error that GoNoGo raises on purpose."""


class InfrastructureError(GonogoError):
    """Broker, database, device or host failed; the kernel is not judged by it."""


class JobError(GonogoError):
    """The request can't be done as asked; asking again changes nothing."""


class KernelFailure(GonogoError):
    """The kernel gave wrong numbers."""


class Bug(GonogoError):
    """GoNoGo itself is wrong: a state that its own code promises never to reach."""


class FieldError(JobError):
    """One field of the input is wrong.

    `field` is a dotted path ("test.shape"), `value` what was given, `limit` what would have been allowed (None when
    the reason says it all). The CLI prints str(error); the HTTP service makes a problem document of the parts.
    """

    def __init__(self, field: str, value: object, reason: str, *, limit: object = None) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        self.limit = limit
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        within = "" if limit is None else f" (limit: {limit})"
        super().__init__(f"{field}: {reason}{within}; got {shown}")


class KernelOutputError(JobError):
    """What a kernel gave back can't be judged: a tensor is missing, or of a wrong shape or type."""
