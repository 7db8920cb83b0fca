"""The public JavaScript library of Standard Webhooks verifies what we send, and nothing else."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import node_programs
from api import SECRET, in_process
from gonogo_service.background.deliver import Deliver
from gonogo_service.kit.background_context import open_background_context
from gonogo_service.kit.principals import Keys
from gonogo_service.webhooks.model import DeliveryRow
from gonogo_service.webhooks.secrets import Box, new_secret
from gonogo_service.webhooks.sending import Sender
from servers import Missing
from webhook_receiver import Got, Receiver, wait_for_senders


def line(secret: str, got: Got, **changes: Any) -> str:
    body = base64.b64encode(changes.pop("body", got.body)).decode()
    return json.dumps({"secret": secret, "headers": {**got.headers, **changes}, "body": body})


def test_javascript_verifies_our_messages_with_either_secret_and_refuses_what_was_changed(
    migrated_sqlite_url: str, tmp_path: Path
) -> None:
    try:
        programs = node_programs.install(tmp_path)
    except Missing as problem:
        pytest.skip(str(problem))
    receiver = Receiver()
    with in_process(migrated_sqlite_url) as api:
        webhook = api.client.post(
            "/api/v1/webhooks", json={"url": receiver.url, "events": ["*"]}
        ).json()
        new = api.client.post(f"/api/v1/webhooks/{webhook['id']}:rotate").json()
        assert api.client.post(f"/api/v1/webhooks/{webhook['id']}:test").status_code == 202
        keys = {
            "broker_url": "redis://127.0.0.1:1/0",
            "secret_key": SecretStr(SECRET),
        }
        core = open_background_context(
            api.settings.model_copy(update={**keys, "webhook_private": ("127.0.0.0/8",)}),
            threading.Event(),
        )
        sender = Sender(core, Box(Keys(SECRET)))
        Deliver(core, {DeliveryRow: sender.send}).run_once()
        wait_for_senders()
        core.close()
    receiver.close()
    (got,) = receiver.got
    old = str(int(got.headers["webhook-timestamp"]) - 600)
    lines = [
        line(webhook["secret"], got),
        line(new["secret"], got),
        line(new_secret(), got),
        line(new["secret"], got, body=got.body + b" "),
        line(new["secret"], got, **{"webhook-id": "another"}),
        line(new["secret"], got, **{"webhook-timestamp": old}),
    ]
    results = node_programs.run(programs, "verify.js", "\n".join(lines))
    assert results[:2] == ["verified webhook.test"] * 2
    assert [result.split(":")[0] for result in results[2:]] == ["WebhookVerificationError"] * 4
    assert "too old" in results[5]
