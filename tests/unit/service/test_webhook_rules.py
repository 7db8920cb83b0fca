"""The rules of webhooks that need no network: signatures, secrets at rest, addresses, and when a
message is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import time_machine
from standardwebhooks import Webhook

from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.webhooks import addresses
from gonogo_service.webhooks.model import DeliveryRow
from gonogo_service.webhooks.secrets import Box, check_secret, new_secret
from gonogo_service.webhooks.sending import requested_delay
from gonogo_service.webhooks.signing import Unverified, recent, verify

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PUBLIC = "93.184.216.34"


def test_we_verify_what_the_public_library_signs() -> None:
    secret, body, moment = new_secret(), b"{}", datetime.now(UTC)
    signature = "v1,AAAA " + Webhook(secret).sign("m1", moment, body.decode())
    stamp = str(int(moment.timestamp()))
    given = {"webhook-id": "m1", "webhook-timestamp": stamp, "webhook-signature": signature}
    verify([secret], given, body)
    times = ("soon", "9" * 12, "9" * 400, "1_0", "\u0661", "-5", "")
    changes = [{"webhook-timestamp": text} for text in times]
    changes += [{"webhook-id": "m2"}, {"webhook-signature": given["webhook-signature"][:-2]}]
    wrong = [(given | change, body) for change in changes] + [(given, b"[]"), (given, b"\xff")]
    for changed, text in wrong:
        with pytest.raises(Unverified):
            verify([secret], changed, text)
    with time_machine.travel(moment + timedelta(days=1), tick=False):
        verify([secret], given, body, tolerance_s=None)
    last = {"webhook-timestamp": "9" * 11}
    assert recent(last, tolerance_s=None).timestamp() == 99_999_999_999
    for bad, reason in (("whsec_", "empty"), ("whsec_!!!!", "not base64")):
        with pytest.raises(ValueError, match=reason):
            verify([bad], given, body)


def test_a_secret_at_rest_opens_under_its_own_key_only() -> None:
    sealed = Box(Keys("k" * 40)).close("whsec_abc")
    assert "whsec" not in sealed
    assert Box(Keys("k" * 40)).open(sealed) == "whsec_abc"
    with pytest.raises(ValueError, match="another GONOGO_SECRET_KEY"):
        Box(Keys("j" * 40)).open(sealed)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_AAAA", "whsec_!!!!", "whsec_" + "A" * 120])
def test_a_bad_secret_is_named(text: str) -> None:
    with pytest.raises(BadField, match="secret"):
        check_secret(text)


BAD = """example.org ftp://example.org/ https:///x http://u:p@example.org/ https://example.org/#a
http://[::1 http://x:0/ http://u@example.org/ http://:p@example.org/ http://exämple.org/"""


@pytest.mark.parametrize(
    "url", [*BAD.split(), "http://x/\r\na: b", "http://x/" + "a" * (addresses.MAX_CHARS - 8)]
)
def test_a_bad_address_is_named(url: str) -> None:
    assert addresses.problem_of(url) is not None


@pytest.mark.parametrize("url", ["http://x:1", "https://x/" + "a" * (addresses.MAX_CHARS - 10)])
def test_a_good_address_is_any_other(url: str) -> None:
    assert addresses.problem_of(url) is None


PRIVATE = """127.0.0.1 10.0.0.8 172.16.3.4 192.168.1.1 169.254.169.254 0.0.0.0 100.64.0.1 224.0.0.1
255.255.255.255 ::1 :: fe80::1%eth0 fd00::1 fec0::1 ff02::1 ::127.0.0.1 ::ffff:10.0.0.1
::ffff:0:10.0.0.1 64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2002:a00:1::1
2001:0:1::f5ff:fffe"""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_a_private_address_is_refused_unless_its_network_is_allowed(address: str) -> None:
    with pytest.raises(addresses.Refused, match="GONOGO_WEBHOOK_PRIVATE"):
        addresses.pin("https://inside.example/x", (), lambda host, port: [address])
    everything = addresses.networks(["0.0.0.0/0", "::/0"])
    pinned = addresses.pin("https://inside.example/x", everything, lambda host, port: [address])
    assert pinned.name == "inside.example"


TEN = """10.0.0.1 ::10.0.0.1 ::ffff:10.0.0.1 ::ffff:0:10.0.0.1 64:ff9b::10.0.0.1 2002:a00:1::1
2001:0:1::f5ff:fffe"""


@pytest.mark.parametrize("address", TEN.split())
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


@pytest.mark.parametrize(
    ("url", "port", "address", "pinned", "host"),
    [
        ("https://ci.example:8443/x?a=1", 8443, PUBLIC, ":8443/x?a=1", "ci.example:8443"),
        ("https://ci.example", 443, PUBLIC, "/", "ci.example"),
        ("http://ci.example", 80, PUBLIC, "/", "ci.example"),
        ("http://[2606:4700::1]/", 80, "2606:4700::1", "/", "[2606:4700::1]"),
    ],
)
def test_the_connection_goes_to_the_address_that_was_checked(
    url: str, port: int, address: str, pinned: str, host: str
) -> None:
    connection = addresses.pin(url, (), lambda _, number: [address] * (number == port))
    where = f"[{address}]" if ":" in address else address
    assert (connection.url, connection.host) == (f"{url.split(':')[0]}://{where}{pinned}", host)
    with pytest.raises(OSError, match="has no address"):
        addresses.pin(url, (), lambda host, port: [])


def test_the_schedule_is_the_contracts_with_a_little_jitter() -> None:
    delays_s = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
    for failed, expected in enumerate(delays_s, 1):
        again_at = DeliveryRow.backoff.next_try(failed, NOW)
        assert again_at is not None
        assert expected <= (again_at - NOW).total_seconds() <= 1.1 * expected
    assert DeliveryRow.backoff.next_try(10, NOW) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        ("999999999999", 86400),
        (format_datetime(NOW + timedelta(minutes=10), usegmt=True), 600),
        (format_datetime(NOW - timedelta(days=3), usegmt=True), 0),
        ((NOW + timedelta(minutes=10)).strftime("%d %b %Y %H:%M:%S -0000"), 600),
        *((header, None) for header in ("soon", "-5", "", "١٢", None)),
        (f"Thu, 01 Jan {'9' * 20} 00:00:00 GMT", None),
        (f"Thu, 01 Jan 2026 00:00:00 +{'9' * 20}", None),
    ],
)
def test_retry_after_is_honored_up_to_a_day(header: str | None, seconds: int | None) -> None:
    requested = requested_delay(header, NOW)
    assert requested == (None if seconds is None else timedelta(seconds=seconds))
    again_at = DeliveryRow.backoff.next_try(1, NOW, at_least=requested)
    assert again_at is not None
    assert (again_at - NOW).total_seconds() >= max(5, seconds or 0)
