"""The public JavaScript library of Standard Webhooks verifies what we send, and nothing else."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import node_programs
from gonogo_service.webhooks.secrets import new_secret
from sent_webhooks import Webhooks
from servers import Missing
from webhook_receiver import Receiver


def test_javascript_verifies_our_messages_with_either_secret_and_refuses_what_was_changed(
    webhooks: Webhooks, receiver: Receiver, tmp_path: Path
) -> None:
    try:
        programs = node_programs.install(tmp_path)
    except Missing as problem:
        pytest.skip(str(problem))
    webhook = webhooks.subscribe(receiver.url)
    new = webhooks.api.client.post(f"/api/v1/webhooks/{webhook['id']}:rotate").json()["secret"]
    webhooks.test(webhook)
    webhooks.send()
    (got,) = receiver.got
    old = str(int(got.headers["webhook-timestamp"]) - 600)

    def line(secret: str, body: bytes = got.body, **headers: Any) -> str:
        encoded = base64.b64encode(body).decode()
        given = {**got.headers, **headers}
        return json.dumps({"secret": secret, "headers": given, "body": encoded})

    lines = [
        line(webhook["secret"]),
        line(new),
        line(new_secret()),
        line(new, got.body + b" "),
        line(new, **{"webhook-id": "another"}),
        line(new, **{"webhook-timestamp": old}),
    ]
    results = node_programs.run(programs, "verify.js", "\n".join(lines))
    assert results[:2] == ["verified webhook.test"] * 2
    assert [result.split(":")[0] for result in results[2:]] == ["WebhookVerificationError"] * 4
    assert "too old" in results[5]
