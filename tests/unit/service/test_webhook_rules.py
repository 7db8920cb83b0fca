"""The rules of webhooks that need no network: signatures, secrets at rest, addresses, and when a
message is tried again."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.webhooks import addresses, schedule, secrets
from gonogo_service.webhooks.signatures import Unverified, recent, signatures, verify

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PUBLIC = "93.184.216.34"


def test_the_public_library_verifies_what_we_sign() -> None:
    secret, old_secret, body, moment = (
        secrets.make(),
        secrets.make(),
        '{"type":"job.finished"}',
        datetime.now(UTC),
    )
    headers = {
        "webhook-id": "m1",
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signatures([secret, old_secret], "m1", moment, body),
    }
    for accepted_secret in (secret, old_secret):
        assert Webhook(accepted_secret).verify(body, headers) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + " ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secrets.make()).verify(body, headers)


def test_we_verify_what_the_public_library_signs() -> None:
    secret, body, moment = secrets.make(), b"{}", datetime.now(UTC)
    header, stamp, now = (
        Webhook(secret).sign("m1", moment, body.decode()),
        str(int(moment.timestamp())),
        moment.timestamp(),
    )
    verify(secret, "m1", stamp, f"v1,AAAA {header}", body, now=now)
    times = [
        {"timestamp": timestamp}
        for timestamp in ("soon", "9" * 12, "9" * 400, "1_0", "\u0661", "-5", "")
    ]
    wrong: list[dict[str, Any]] = [
        {"message_id": "m2"},
        {"body": b"[]"},
        {"body": b"\xff"},
        {"now": int(now) + 301},
        {"now": int(now) - 301},  # signed in the future
        {"header": header[:-2]},
        *times,
    ]
    for changed in wrong:
        arguments: dict[str, Any] = {
            "message_id": "m1",
            "timestamp": stamp,
            "header": header,
            "body": body,
            "now": now,
        } | changed
        with pytest.raises(Unverified):
            verify(secret, **arguments)
    for age in (300, -300):
        verify(secret, "m1", stamp, header, body, now=int(now) + age)
    verify(secret, "m1", stamp, header, body, now=now + 9999, tolerance_s=None)
    assert recent("9" * 11, now=now, tolerance_s=None) == 99_999_999_999
    with pytest.raises(Unverified, match="not a number of seconds"):
        recent("9" * 12, now=now, tolerance_s=None)
    for bad, reason in (("whsec_", "empty"), ("whsec_!!!!", "not base64")):
        with pytest.raises(ValueError, match=reason):
            verify(bad, "m1", stamp, header, body, now=now)


def test_a_secret_at_rest_opens_under_its_own_key_only() -> None:
    sealed = secrets.Box(Keys("k" * 40)).close("whsec_abc")
    assert "whsec" not in sealed
    assert secrets.Box(Keys("k" * 40)).open(sealed) == "whsec_abc"
    with pytest.raises(ValueError, match="another GONOGO_SECRET_KEY"):
        secrets.Box(Keys("j" * 40)).open(sealed)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_AAAA", "whsec_!!!!", "whsec_" + "A" * 120])
def test_a_bad_secret_is_named(text: str) -> None:
    with pytest.raises(BadField, match="secret"):
        secrets.check(text)


@pytest.mark.parametrize(
    "url",
    [
        "example.org",
        "ftp://example.org/",
        "https:///x",
        "http://u:p@example.org/",
        "https://example.org/#a",
        "http://[::1",
        "http://x:0/",
        "http://u@example.org/",
        "http://:p@example.org/",
        "http://exämple.org/",
        "http://x/" + "a" * (addresses.MAX_CHARS - 8),
    ],
)
def test_a_bad_address_is_named(url: str) -> None:
    with pytest.raises(BadField, match="url"):
        addresses.check(url)


@pytest.mark.parametrize("url", ["http://x:1", "https://x/" + "a" * (addresses.MAX_CHARS - 10)])
def test_a_good_address_is_any_other(url: str) -> None:
    assert addresses.check(url) == url


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.8",
        "172.16.3.4",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::127.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:1::f5ff:fffe",
        "fec0::1",
        "ff02::1",
    ],
)
def test_a_private_address_is_refused_unless_its_network_is_allowed(address: str) -> None:
    with pytest.raises(addresses.Refused, match="GONOGO_WEBHOOK_PRIVATE"):
        addresses.pin("https://inside.example/x", (), lambda host, port: [address])
    everything = addresses.networks(["0.0.0.0/0", "::/0"])
    assert (
        addresses.pin("https://inside.example/x", everything, lambda host, port: [address]).name
        == "inside.example"
    )


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "::10.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:a00:1::1",
        "2001:0:1::f5ff:fffe",
    ],
)
def test_an_allowed_address_is_one_in_every_way_that_it_is_written(address: str) -> None:
    assert addresses.permitted(address, addresses.networks(["192.168.0.0/16", "10.0.0.0/24"]))
    assert not addresses.permitted(address, addresses.networks(["192.168.0.0/16", "10.0.1.0/24"]))


@pytest.mark.parametrize(
    "address", [PUBLIC, "2606:4700::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_a_public_address_is_one_in_every_way_that_it_is_written(address: str) -> None:
    assert addresses.permitted(address, ())


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(addresses.Refused):
        addresses.pin("https://mixed.example/", (), lambda host, port: [PUBLIC, "10.0.0.1"])


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    known = {("ci.example", 8443): [PUBLIC]}
    pinned = addresses.pin(
        "https://ci.example:8443/hook?a=1", (), lambda host, port: known[host, port]
    )
    assert pinned == addresses.Pinned(
        f"https://{PUBLIC}:8443/hook?a=1", "ci.example:8443", "ci.example"
    )
    for url, port in (("https://ci.example", 443), ("http://ci.example", 80)):
        pinned = addresses.pin(url, (), lambda _, number, port=port: [PUBLIC] * (number == port))
        assert (pinned.url, pinned.host) == (f"{url.split(':')[0]}://{PUBLIC}/", "ci.example")
    with pytest.raises(OSError, match="has no address"):
        addresses.pin("https://ci.example/", (), lambda host, port: [])
    six = addresses.pin("http://[2606:4700::1]/", (), lambda host, port: ["2606:4700::1"])
    assert (six.url, six.host) == ("http://[2606:4700::1]/", "[2606:4700::1]")


def test_the_schedule_is_the_contracts_with_a_little_jitter() -> None:
    chance = random.Random(1)
    waits = []
    for tries in range(1, 10):
        follows = schedule.after(tries, 500, None, NOW, chance)
        assert follows.state is DeliveryState.waiting
        assert follows.again_at is not None
        waits.append((follows.again_at - NOW).total_seconds())
    for wait, expected in zip(
        waits, (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400), strict=True
    ):
        assert expected <= wait <= 1.1 * expected
    assert schedule.after(10, 500, None, NOW, chance) == schedule.Next(DeliveryState.failed)
    assert schedule.after(10, None, None, NOW, chance).state is DeliveryState.failed


def test_what_an_answer_means() -> None:
    chance = random.Random(1)
    for status in (200, 201, 204, 299):
        assert schedule.after(1, status, None, NOW, chance) == schedule.Next(
            DeliveryState.delivered
        )
    for refused in (199, 300, 301, 302, 400, 401, 404, 429, 500, None):
        assert schedule.after(1, refused, None, NOW, chance).state is DeliveryState.waiting
    assert schedule.after(1, 410, None, NOW, chance) == schedule.Next(
        DeliveryState.failed, disable=True
    )


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        ("999999999999", 86400),
        (format_datetime(NOW + timedelta(minutes=10), usegmt=True), 600),
        (format_datetime(NOW - timedelta(days=3), usegmt=True), 0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("١٢", None),
        (None, None),
        (f"Thu, 01 Jan {'9' * 20} 00:00:00 GMT", None),
        (f"Thu, 01 Jan 2026 00:00:00 +{'9' * 20}", None),
    ],
)
def test_retry_after_is_honored_up_to_a_day(header: str | None, seconds: int | None) -> None:
    assert schedule.requested_delay(header, NOW) == (
        None if seconds is None else timedelta(seconds=seconds)
    )
    follows = schedule.after(1, 429, header, NOW, random.Random(1))
    assert follows.again_at is not None
    assert (follows.again_at - NOW).total_seconds() >= max(5, seconds or 0)
