"""`events` of the configuration: events of this broker, sent to a web address or published on a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from bridge.base import TopicError, check_filter, check_name
from gateway.base.limits import Model

HOOKS_MAX = 32  # web addresses and topics that hear of events


class EventHook(Model):
    """Receiver of events. Either `url` or `topic`."""

    url: str | None = Field(default=None, description="events are sent there by POST, as JSON")
    secret_file: Path | None = Field(
        default=None, description="a private file; each request is signed with its content"
    )
    topic: str | None = Field(default=None, description="events are published there, as JSON")
    kinds: list[Literal["connected", "disconnected", "finding", "message"]] = Field(
        min_length=1, description="finding: whatever `veilmq status` says begins or is over; message: see filters"
    )
    filters: list[str] = Field(default=[], description="topics whose messages are told, for the kind message")

    @model_validator(mode="after")
    def _settings_fit(self) -> EventHook:
        if (self.url is None) == (self.topic is None):
            raise ValueError("give either url or topic")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{self.url} is no web address; write e.g. https://ops.example.net/hook")
        if self.secret_file is not None and self.url is None:
            raise ValueError("secret_file is for url")
        if ("message" in self.kinds) != bool(self.filters):
            raise ValueError("the kind message and filters go together; give both")
        try:
            for topic_filter in self.filters:
                check_filter(topic_filter)
            if self.topic is not None:
                check_name(self.topic)
        except TopicError as error:
            raise ValueError(str(error)) from None
        return self

    def anchored(self, directory: Path) -> EventHook:
        """Returns the settings with relative paths taken from `directory`."""
        return self.model_copy(update={"secret_file": self.secret_file and directory / self.secret_file.expanduser()})
