"""Who sent a delivery: GitHub's signatures, Standard Webhooks, and the headers that name it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
import time_machine
from pydantic import SecretStr
from standardwebhooks import Webhook

from gonogo_service.webhooks import signing
from gonogo_service.webhooks.signing import GITHUB, Unverified

NOW = 1_800_000_000
BODY = b'{"zen":"x"}'
OLD, NEW = "the secret of last year", "the secret that comes next"
WHSEC = ["whsec_" + letter * 32 for letter in "AB"]


def headers(secret: str, **changes: str) -> dict[str, str]:
    """The headers of a CI, as the public library signs them."""
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(NOW, UTC), BODY.decode())
    usual = {"webhook-id": "msg_1", "webhook-timestamp": str(NOW), "webhook-signature": signature}
    return usual | {f"webhook-{name}": value for name, value in changes.items()}


@pytest.mark.parametrize(
    ("setting", "secrets"), [(None, []), (SecretStr(" a,b ,, "), ["a", "b"]), (SecretStr(""), [])]
)
def test_a_setting_may_have_several_secrets(setting: SecretStr | None, secrets: list[str]) -> None:
    assert signing.listed(setting) == secrets


def test_github_signs_with_any_of_the_secrets() -> None:
    for secret in (OLD, NEW):
        signing.verify_github([OLD, NEW], {GITHUB: signing.github_signature(secret, BODY)}, BODY)
    given = {GITHUB: signing.github_signature(NEW, BODY)}
    for secrets, body in (([OLD], BODY), ([OLD, NEW], BODY + b" "), ([], BODY)):
        with pytest.raises(Unverified, match="does not match"):
            signing.verify_github(secrets, given, body)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "is missing"),
        ({GITHUB: "sha1=" + "0" * 64}, "is missing"),
        ({GITHUB: "sha256=" + "0" * 63}, "64 hexadecimal digits"),
        ({GITHUB: "sha256=" + "0" * 63 + "X"}, "64 hexadecimal digits"),
    ],
)
def test_a_signature_of_another_form_is_refused_before_the_body_is_read(
    given: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(Unverified, match=reason):
        signing.check_github_form(given)
    with pytest.raises(Unverified, match=reason):
        signing.verify_github([NEW], given, BODY)


def test_another_ci_signs_with_any_of_the_secrets_now() -> None:
    with time_machine.travel(NOW + 300, tick=False):
        for secret in WHSEC:
            signing.check_form(headers(secret))
            signing.verify(WHSEC, headers(secret), BODY)
    for secrets, changes, now, reason in (
        (WHSEC[:1], {}, NOW, "another secret"),
        (WHSEC, {"id": "msg_2"}, NOW, "another secret"),
        (WHSEC, {}, NOW + 301, "301 s old"),
        (WHSEC, {}, NOW - 301, "-301 s old"),
        ([], {}, NOW, "no signature matches"),
    ):
        with time_machine.travel(now, tick=False), pytest.raises(Unverified, match=reason):
            signing.verify(secrets, headers(WHSEC[1], **changes), BODY)


def test_another_ci_s_headers_are_refused_before_the_body_is_read() -> None:
    signature = headers(WHSEC[0])["webhook-signature"]
    full = signature + " " + "x" * (signing.MAX_HEADER - len(signature) - 1)
    with time_machine.travel(NOW, tick=False):
        for good in (signature, f"v2,x {signature}", full):
            signing.check_form(headers(WHSEC[0], signature=good))
        for bad in ("", "v2,x", signature[:-1], full + "x"):
            with pytest.raises(Unverified, match="44 base64 characters"):
                signing.check_form(headers(WHSEC[0], signature=bad))
    for now in (NOW - 301, NOW + 301):
        with time_machine.travel(now, tick=False), pytest.raises(Unverified, match="s old"):
            signing.check_form(headers(WHSEC[0]))


def test_a_delivery_is_named_by_short_plain_text() -> None:
    names = ("x-github-delivery", "x-github-event")
    longest = "x" * signing.MAX_ID
    given = {"x-github-delivery": longest, "x-github-event": "push"}
    assert signing.identity(given, *names) == (longest, "push")
    for wrong in ("", longest + "x", "püsh", "push\n"):
        with pytest.raises(Unverified, match="x-github-event"):
            signing.identity({**given, "x-github-event": wrong}, *names)
    with pytest.raises(Unverified, match="x-github-delivery"):
        signing.identity({"x-github-event": "push"}, *names)
