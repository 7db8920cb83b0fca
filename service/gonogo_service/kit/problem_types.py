"""Every type of problem document, with the sentence that docs/errors.md says about it.

A type is `urn:gonogo:problem:` and one of these names. Programs may rely on it; the detail is for
people. A problem without a name of its own has that of its HTTP status.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A type: the statuses that it comes with, and when it does.

    No status is a problem that the command finds before it asks a server.
    """

    name: str
    statuses: tuple[int, ...]
    sentence: str


PROBLEM_TYPES = {
    row.name: row
    for row in (
        ProblemType("address", (403,), "a host asks from an address that it isn't bound to"),
        ProblemType("attempt-over", (410,), "the attempt has ended, or its job was canceled"),
        ProblemType("bad-request", (400,), "the address or the body can't be read"),
        ProblemType("body-too-large", (413,), "the body is larger than its address allows"),
        ProblemType(
            "bounds", (403,), "the token is limited to repositories or suites, and this is not one"
        ),
        ProblemType("bug", (500,), "GoNoGo is wrong; the service's log has the details"),
        ProblemType(
            "content-encoding",
            (415,),
            "the body is compressed in a way that this address doesn't take",
        ),
        ProblemType("csrf", (403,), "a browser's request lacks the token of its page"),
        ProblemType("database", (503,), "the database is unavailable; nothing was stored"),
        ProblemType(
            "foreign",
            (409,),
            "a host spoke for what isn't its own, or sent other content for what is stored",
        ),
        ProblemType("host", (421,), "the host name isn't in `GONOGO_HOSTS`"),
        ProblemType("impossible-job", (422,), "the request can't be done as it is"),
        ProblemType(
            "infrastructure",
            (503,),
            "the broker, the database or a device host failed, or the command reaches no server",
        ),
        ProblemType(
            "invalid-field",
            (422,),
            "a field has a wrong value: `field`, `value` and `limit` of the first one, all in "
            "`errors`",
        ),
        ProblemType("method-not-allowed", (405,), "the address doesn't support this method"),
        ProblemType(
            "no-secret", (403,), "the service has no secret for such deliveries, so it accepts none"
        ),
        ProblemType("no-session", (409,), "there is no login to end"),
        ProblemType("not-found", (404,), "there is nothing of this name or at this address"),
        ProblemType("not-json", (400, 415), "the body isn't JSON, or isn't sent as JSON"),
        ProblemType("not-ready", (503,), "a part of the service isn't ready; the detail names it"),
        ProblemType("not-removable", (409,), "the job can't be removed in its state"),
        ProblemType("not-utf-8", (400,), "the body isn't UTF-8"),
        ProblemType("origin", (403,), "a page of another site sent a request that changes data"),
        ProblemType(
            "quota",
            (422, 429),
            "the token's quota is used up; `field` names it, `limit` its size. Or a host has all "
            "the devices or workers that it may have",
        ),
        ProblemType("read-timeout", (503,), "the read took too long: ask for less"),
        ProblemType("removed", (410,), "retention has removed the results or artifacts"),
        ProblemType("request-timeout", (408,), "the body did not arrive in time"),
        ProblemType("scope", (403,), "the token's rights don't include this"),
        ProblemType("signature", (401,), "the signature of a delivery is not valid"),
        ProblemType("too-many-failures", (429,), "too many failures came from this address"),
        ProblemType("unauthorized", (401,), "there is no valid token or login"),
        ProblemType("usage", (), "the command can't be run as it is written"),
    )
}
