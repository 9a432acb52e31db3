"""`console` of the configuration: the page and the HTTP API of a broker, and the rights of its users."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from gateway.base.limits import Model, is_loopback

CONNECTIONS_MAX = 128
"""Connections to a console: beyond it the connection that has waited longest for its next request is closed."""
STREAMS_MAX, STREAMS_OF_USER = 50, 10
"""Streams that are open at a console, and of one user."""
CONSOLE_FILES = CONNECTIONS_MAX + 2 * STREAMS_MAX
"""Files that a console may open; they are no files of MQTT connections."""


class Console(Model):
    """Page and HTTP API. Users log in with their MQTT name and password and have their MQTT rights; `admins` have all
    others.
    """

    bind: str = Field(
        default="127.0.0.1:8080", description="HOST:PORT; other hosts than this one only with a certificate"
    )
    certfile: Path | None = Field(default=None, description="TLS certificate, PEM")
    keyfile: Path | None = Field(default=None, description="its private key, PEM")
    admins: list[str] = Field(default=[], description="users who see clients, sessions, retained messages and the log")
    hosts: list[str] = Field(
        default=[], description="names under which browsers reach it, beside addresses and those of its certificate"
    )
    write: bool = Field(default=False, description="admins may disconnect clients, clear retained messages, edit users")
    token_days: int = Field(default=90, ge=1, le=3650, description="how long a token of the API counts")

    @model_validator(mode="after")
    def _is_safe(self) -> Console:
        port = self.bind.rpartition(":")[2]
        if not port.isdigit() or int(port) > 65_535:
            raise ValueError(f"{self.bind} is not HOST:PORT; write e.g. 127.0.0.1:8080")
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile go together; give both")
        if not is_loopback(self.bind) and self.certfile is None:
            raise ValueError("passwords would cross the network in clear; bind 127.0.0.1, or give certfile and keyfile")
        return self

    def anchored(self, directory: Path) -> Console:
        """Returns the settings with relative paths taken from `directory`."""
        names = ("certfile", "keyfile")
        found = {name: directory / path.expanduser() for name in names if (path := getattr(self, name)) is not None}
        return self.model_copy(update=found)
