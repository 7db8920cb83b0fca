"""How our consumers acknowledge messages (Celery's `Task.Request`, its place for this), so that a
restarted broker never stalls one.
"""

from __future__ import annotations

from celery.worker.request import Request
from kombu.transport.virtual import QoS


class LosslessRequest(Request):  # type: ignore[misc]
    """Celery's request, whose place among the prefetched messages is free again even when the
    broker can't be told that it is done.

    Kombu counts a message as unacknowledged until the broker has heard of it, and Celery logs and
    swallows a failure to tell it. Each message that was in hand while the broker went away would
    hold one of the few places for ever; with all of them held, a consumer reads no more, not even
    the end of its connection, and so never connects again. The broker, if it kept its data,
    delivers such a message once more after the visibility timeout. Every task of ours may be run
    twice.
    """

    def acknowledge(self) -> None:
        """Tell the broker that the message is done; where that fails, as logged by Celery, give
        back its place here.
        """
        try:
            super().acknowledge()
        finally:
            message = self.message
            if not message.acknowledged:
                # The local half of what the Redis transport's does
                QoS.ack(message.channel.qos, message.delivery_tag)  # type: ignore[no-untyped-call]
