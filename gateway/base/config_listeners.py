"""`listeners` of the configuration: addresses for clients, the clients admitted there, and the effect of a slow
client.
"""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.base.limits import Model

PORT_MAX = 65_535  # of TCP
PROXIES_MAX = 100
"""Addresses and networks with which one listener compares each new connection."""


def _is_text_or_number(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


UNIX = "unix:"
"""Prefix of `bind` for a Unix socket."""


def _bind(text: str) -> str:
    """Accepts amqtt's forms: HOST:PORT, [IPv6]:PORT, :PORT, PORT, HOST. Refuses a port above the highest one, which
    would wrap around to another port.
    """
    if text.startswith(UNIX):
        return text
    _, colon, port = text.rpartition("]:" if text.startswith("[") else ":")
    number = port if colon or port.isdigit() else ""
    if number and not (number.isascii() and number.isdigit() and int(number) <= PORT_MAX):
        raise ValueError(f"port {number} is none; write HOST:PORT with a port up to {PORT_MAX}")
    return text


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"{error}; write an address such as 192.0.2.7, or a network such as 10.0.0.0/8") from None


Bind = Annotated[str, BeforeValidator(_is_text_or_number), AfterValidator(_bind)]
"""amqtt allows a bare port number."""


class Listener(Model):
    """Address for clients. Absent keys are taken from the listener named `default`."""

    type: Literal["tcp", "ws", "external"] = Field(default="tcp", description="ws: WebSocket; external: handed over")
    bind: Bind = Field(default="127.0.0.1:1883", description="HOST:PORT, or unix:PATH for a Unix socket")
    max_connections: int = Field(default=0, ge=-1, description="0 or -1: only limits.connections applies")
    ssl: bool = Field(default=False, description="TLS 1.2 or later; absent: true if there are certfile and keyfile")
    certfile: Path | None = Field(default=None, description="our certificate with its chain, PEM")
    keyfile: Path | None = Field(default=None, description="its key, a private file")
    cafile: Path | None = Field(default=None, description="whose client certificates are trusted, PEM")
    capath: Path | None = Field(default=None, description="the same as a directory of hashed names, as OpenSSL has it")
    cadata: str | None = Field(default=None, repr=False, description="the same as text")
    require_client_certificate: bool = Field(
        default=False, description="refuse clients without a certificate that the CA signed"
    )
    overlay: bool = Field(
        default=False, description="members of the overlay connect here, over MQTT 5 and mutual TLS only"
    )
    origins: list[str] = Field(
        default=[], description="pages whose scripts may connect by WebSocket, e.g. https://ward.example; none: any"
    )
    proxy: list[Annotated[str, AfterValidator(_network)]] = Field(
        default=[],
        max_length=PROXIES_MAX,
        description="addresses or networks of proxies that begin each connection with a header of the PROXY protocol, "
        "version 1 or 2; connections from elsewhere are closed. None: no header is believed",
    )
    when_full: Literal["hold", "drop_oldest", "drop_newest"] = Field(
        default="hold", description="what a full queue of a client that is connected here means for who publishes to it"
    )
    queue_messages: int | None = Field(default=None, ge=1, description="absent: limits.queue_messages")
    queue_bytes: int | None = Field(default=None, ge=1024, description="absent: limits.queue_bytes")
    reader: str | None = Field(default=None, description="of amqtt's external listeners; not used")
    writer: str | None = Field(default=None, description="of amqtt's external listeners; not used")

    @property
    def unix_path(self) -> Path | None:
        """The path of this listener's Unix socket; None for any other listener."""
        return Path(self.bind.removeprefix(UNIX)) if self.bind.startswith(UNIX) else None

    @model_validator(mode="before")
    @classmethod
    def _files_mean_tls(cls, told: object) -> object:
        """Switches TLS on for a listener with certificate and key, as Mosquitto does, unless `ssl` is given."""
        if isinstance(told, dict) and told.get("certfile") and told.get("keyfile") and "ssl" not in told:
            return {**told, "ssl": True}
        return told

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Listener:
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile go together; give both")
        if self.ssl and self.certfile is None and not self.overlay:
            raise ValueError("ssl needs certfile and keyfile; give both")
        if self.require_client_certificate and not self.ssl:
            raise ValueError("require_client_certificate needs ssl: true")
        authority = self.cafile or self.capath or self.cadata
        if self.require_client_certificate and not authority and not self.overlay:
            raise ValueError("require_client_certificate needs the CA that signs clients; give cafile")
        if self.overlay and self.type != "tcp":
            raise ValueError("an overlay listener is of type tcp")
        if self.bind == UNIX:
            raise ValueError("bind names no path; write unix:/run/veilmq.sock")
        if self.proxy and (self.overlay or self.type == "external" or self.unix_path is not None):
            raise ValueError("proxy is for listeners of clients over TCP; take it out, or bind HOST:PORT")
        if self.origins and self.type != "ws":
            raise ValueError("origins is for listeners of type ws")
        return self
