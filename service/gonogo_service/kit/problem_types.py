"""Every type of problem document, with the sentence that docs/errors.md says about it.

A type is `urn:gonogo:problem:` and one of these names. Programs may rely on it; the detail is for
people. A problem without a name of its own has that of its HTTP status.
"""

from __future__ import annotations

from typing import NamedTuple


class ProblemType(NamedTuple):
    """A type: the statuses that it comes with, and when it does.

    No status is a problem that the command finds before it asks a server.
    """

    statuses: tuple[int, ...]
    sentence: str


PROBLEM_TYPES = {
    "address": ProblemType((403,), "a host asks from an address that it isn't bound to"),
    "attempt-over": ProblemType((410,), "the attempt has ended, or its job was canceled"),
    "bad-request": ProblemType((400,), "the address or the body can't be read"),
    "body-too-large": ProblemType((413,), "the body is larger than its address allows"),
    "bounds": ProblemType(
        (403,), "the token is limited to repositories or suites, and this is not one"
    ),
    "bug": ProblemType((500,), "GoNoGo is wrong; the service's log has the details"),
    "content-encoding": ProblemType(
        (415,), "the body is compressed in a way that this address doesn't take"
    ),
    "csrf": ProblemType((403,), "a browser's request lacks the token of its page"),
    "database": ProblemType((503,), "the database is unavailable; nothing was stored"),
    "foreign": ProblemType(
        (409,), "a host spoke for what isn't its own, or sent other content for what is stored"
    ),
    "host": ProblemType((421,), "the host name isn't in `GONOGO_HOSTS`"),
    "impossible-job": ProblemType((422,), "the request can't be done as it is"),
    "infrastructure": ProblemType(
        (503,), "the broker, the database or a device host failed, or the command reaches no server"
    ),
    "invalid-field": ProblemType(
        (403, 409, 413, 422),
        "a field has a wrong value: `field`, `value` and `limit` of the first one, all in `errors`",
    ),
    "method-not-allowed": ProblemType((405,), "the address doesn't support this method"),
    "no-secret": ProblemType(
        (403,), "the service has no secret for such deliveries, so it accepts none"
    ),
    "no-session": ProblemType((409,), "there is no login to end"),
    "not-found": ProblemType((404,), "there is nothing of this name or at this address"),
    "not-json": ProblemType((400, 415), "the body isn't JSON, or isn't sent as JSON"),
    "not-ready": ProblemType((503,), "a part of the service isn't ready; the detail names it"),
    "not-removable": ProblemType((409,), "the job can't be removed in its state"),
    "not-utf-8": ProblemType((400,), "the body isn't UTF-8"),
    "origin": ProblemType((403,), "a page of another site sent a request that changes data"),
    "quota": ProblemType(
        (422, 429),
        "the token's quota is used up; `field` names it, `limit` its size. Or a host has all the "
        "devices or workers that it may have",
    ),
    "read-timeout": ProblemType((503,), "the read took too long: ask for less"),
    "removed": ProblemType((410,), "retention has removed the results or artifacts"),
    "request-timeout": ProblemType((408,), "the body did not arrive in time"),
    "scope": ProblemType((403,), "the token's rights don't include this"),
    "signature": ProblemType((401,), "the signature of a delivery is not valid"),
    "too-many-failures": ProblemType((429,), "too many failures came from this address"),
    "unauthorized": ProblemType((401,), "there is no valid token or login"),
    "usage": ProblemType((), "the command can't be run as it is written"),
}
