"""`gonogo webhooks verify` on messages that the standardwebhooks library signed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from typer.testing import CliRunner

from gonogo_service.cli.nouns.webhooks import app
from gonogo_service.webhooks.secrets import new_secret

BODY = '{"type":"job.finished"}'


@pytest.mark.parametrize(
    ("changed", "code", "expected_output"),
    [
        ({}, 0, "verified"),
        ({"--id": "m2"}, 1, "no signature matches"),
        ({"--timestamp": "9"}, 1, "old"),
    ],
)
def test_a_message_is_verified_or_not(
    tmp_path: Path, changed: dict[str, str], code: int, expected_output: str
) -> None:
    secret, now = new_secret(), datetime.now(UTC)
    (tmp_path / "body").write_text(BODY)
    words = {
        "--id": "m1",
        "--timestamp": str(int(now.timestamp())),
        "--signature": Webhook(secret).sign("m1", now, BODY),
        "--secret": secret,
    }
    options = [word for pair in (words | changed).items() for word in pair]
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "body"), *options])
    assert done.exit_code == code, done.output
    assert expected_output in done.output
