"""`console` of the configuration: the page and the HTTP API of a broker, and the rights of its users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, model_validator

from gateway.base.limits import Model, is_loopback

CONNECTIONS_MAX = 128
"""Connections to a console: beyond it the address with most loses its oldest; if none has more, the new address its
own that has waited longest for a request."""
STREAMS_MAX = 50
"""Streams open at a console: beyond it the user with most loses its oldest to another user."""
CONSOLE_FILES = CONNECTIONS_MAX + 2 * STREAMS_MAX
"""Files that a console may open; they are no files of MQTT connections."""


class ConsoleProvider(Model):
    """Login of the page at the identity provider of `gateway.auth.oidc.OidcPlugin`, by the authorization code flow."""

    client_id: str = Field(min_length=1, description="name of the console at the provider")
    client_secret_file: Path | None = Field(
        default=None, description="file with its secret; without it the console is a public client, with PKCE alone"
    )
    url: str = Field(
        description="address of the console as browsers see it; the provider is told to come back to URL/login/callback"
    )
    scopes: list[str] = Field(default=["openid"], description="scopes that are asked for")
    name: str = Field(default="your company's login", max_length=100, description="what the button of the page says")

    @model_validator(mode="after")
    def _is_safe(self) -> ConsoleProvider:
        scheme, _, rest = self.url.partition("://")
        host = rest.partition("/")[0]
        if scheme not in ("http", "https") or not host or any(mark in self.url for mark in "?#@"):
            raise ValueError(f"{self.url} is no address; write e.g. https://console.plant.example")
        if scheme == "http" and not is_loopback(host if ":" in host else f"{host}:80"):
            raise ValueError("url: codes would cross the network in clear; write https")
        return self


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
    admin_groups: list[str] = Field(default=[], description="groups of the identity provider whose members are admins")
    provider: ConsoleProvider | None = Field(default=None, description="login at the identity provider")
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
        found: dict[str, object] = {
            name: directory / path.expanduser() for name in names if (path := getattr(self, name)) is not None
        }
        provider = self.provider
        if provider is not None and provider.client_secret_file is not None:
            secret = directory / provider.client_secret_file.expanduser()
            found |= {"provider": provider.model_copy(update={"client_secret_file": secret})}
        return self.model_copy(update=found)

    def has_admin(self, user: str, groups: Sequence[str] | None) -> bool:
        """Returns True for an admin. `groups`: those that the identity provider says; None: the user has a password."""
        return user in self.admins or any(group in self.admin_groups for group in groups or ())
