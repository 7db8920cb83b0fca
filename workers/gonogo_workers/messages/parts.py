"""Typed parts of the messages that a worker receives."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from gonogo.spec.validation import Model, in_words

Text = Annotated[str, Field(min_length=1, json_schema_extra=in_words("text, not empty"))]


class MessagePart(Model):
    """An object of a message; the fields that a newer service adds are ignored."""

    model_config = ConfigDict(extra="ignore")
