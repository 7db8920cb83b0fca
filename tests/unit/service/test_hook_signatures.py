"""Who sent a delivery: GitHub's signatures, Standard Webhooks, and the headers that name it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
import time_machine
from pydantic import SecretStr
from standardwebhooks import Webhook

from gonogo_service.ci import signatures
from gonogo_service.webhooks.signatures import Unverified

NOW = 1_800_000_000
BODY = b'{"zen":"x"}'
OLD, NEW = "the secret of last year", "the secret that comes next"
WHSEC = ["whsec_" + letter * 32 for letter in "AB"]


def headers(secret: str, **changes: str) -> dict[str, str]:
    """The headers of a CI, as the public library signs them."""
    usual = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(NOW),
        "webhook-signature": Webhook(secret).sign(
            "msg_1", datetime.fromtimestamp(NOW, UTC), BODY.decode()
        ),
    }
    return usual | {f"webhook-{name}": value for name, value in changes.items()}


@pytest.mark.parametrize(
    ("setting", "secrets"),
    [(None, []), (SecretStr(" a,b ,, "), ["a", "b"]), (SecretStr(""), [])],
)
def test_a_setting_may_have_several_secrets(setting: SecretStr | None, secrets: list[str]) -> None:
    assert signatures.secrets_of(setting) == secrets


def test_github_signs_with_any_of_the_secrets() -> None:
    for secret in (OLD, NEW):
        signatures.github([OLD, NEW], {signatures.SIGNATURE: signatures.sign(secret, BODY)}, BODY)
    given = {signatures.SIGNATURE: signatures.sign(NEW, BODY)}
    for secrets, body in (([OLD], BODY), ([OLD, NEW], BODY + b" "), ([], BODY)):
        with pytest.raises(Unverified, match="does not match"):
            signatures.github(secrets, given, body)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "is missing"),
        ({signatures.SIGNATURE: "sha1=" + "0" * 64}, "is missing"),
        ({signatures.SIGNATURE: "sha256=" + "0" * 63}, "64 hexadecimal digits"),
        ({signatures.SIGNATURE: "sha256=" + "0" * 63 + "X"}, "64 hexadecimal digits"),
    ],
)
def test_a_signature_of_another_form_is_refused_before_the_body_is_read(
    given: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(Unverified, match=reason):
        signatures.github_form(given)
    with pytest.raises(Unverified, match=reason):
        signatures.github([NEW], given, BODY)


def test_another_ci_signs_with_any_of_the_secrets_now() -> None:
    for secret in WHSEC:
        signatures.standard_form(headers(secret), now=NOW + 300)
        signatures.standard(WHSEC, headers(secret), BODY, now=NOW + 300)
    with time_machine.travel(NOW, tick=False):
        signatures.standard_form(headers(WHSEC[0]))
        signatures.standard(WHSEC, headers(WHSEC[0]), BODY)
    for secrets, changes, now, reason in (
        (WHSEC[:1], {}, NOW, "another secret"),
        (WHSEC, {"id": "msg_2"}, NOW, "another secret"),
        (WHSEC, {}, NOW + 301, "301 s old"),
        (WHSEC, {}, NOW - 301, "-301 s old"),
        ([], {}, NOW, "no secret is set"),
    ):
        with pytest.raises(Unverified, match=reason):
            signatures.standard(secrets, headers(WHSEC[1], **changes), BODY, now=now)


def test_another_ci_s_headers_are_refused_before_the_body_is_read() -> None:
    signature = headers(WHSEC[0])["webhook-signature"]
    full = signature + " " + "x" * (signatures.MAX_HEADER - len(signature) - 1)
    for good in (signature, f"v2,x {signature}", full):
        signatures.standard_form(headers(WHSEC[0], signature=good), now=NOW)
    for bad in ("", "v2,x", signature[:-1], full + "x"):
        with pytest.raises(Unverified, match="44 base64 characters"):
            signatures.standard_form(headers(WHSEC[0], signature=bad), now=NOW)
    for now in (NOW - 301, NOW + 301):
        with pytest.raises(Unverified, match="s old"):
            signatures.standard_form(headers(WHSEC[0]), now=now)


def test_a_delivery_is_named_by_short_plain_text() -> None:
    names = (signatures.DELIVERY, signatures.EVENT)
    longest = "x" * signatures.MAX_ID
    given = {signatures.DELIVERY: longest, signatures.EVENT: "push"}
    assert signatures.identity(given, names) == (longest, "push")
    for wrong in ("", longest + "x", "püsh", "push\n"):
        with pytest.raises(Unverified, match=signatures.EVENT):
            signatures.identity({**given, signatures.EVENT: wrong}, names)
    with pytest.raises(Unverified, match=signatures.DELIVERY):
        signatures.identity({signatures.EVENT: "push"}, names)
