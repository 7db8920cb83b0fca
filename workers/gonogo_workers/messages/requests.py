"""The request class with which our consumers acknowledge messages (Celery's `Task.Request`).

It keeps a restarted broker from stalling a consumer.
"""

from __future__ import annotations

from celery.worker.request import Request
from kombu.transport.virtual import QoS


class LosslessRequest(Request):  # type: ignore[misc]
    """Celery's request, which frees its prefetch slot even when the broker can't be reached.

    Kombu counts a message as unacknowledged until the broker has heard of it, and Celery logs and
    swallows a failure to acknowledge. Each message in process when the broker went down would hold
    one of the few prefetch slots forever. With all slots held, a consumer reads nothing more, not
    even the end of its connection, and so never reconnects. If the broker kept its data, it
    delivers such a message again after the visibility timeout. All our tasks may run twice.
    """

    def acknowledge(self) -> None:
        """Acknowledge the message; where that fails (Celery logs it), free its slot here."""
        try:
            super().acknowledge()
        finally:
            message = self.message
            if not message.acknowledged:
                # The local half of the Redis transport's `ack`
                QoS.ack(message.channel.qos, message.delivery_tag)  # type: ignore[no-untyped-call]
