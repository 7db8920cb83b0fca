"""A receiver of webhooks for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webhook_receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    http_receiver = Receiver()
    yield http_receiver
    http_receiver.close()
