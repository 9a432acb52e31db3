"""`bridges` of the configuration: ordinary brokers with which topics are exchanged.

Names and bounds only; `gateway/bridging` has the behaviour of a bridge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from bridge.base import TopicError, check_filter
from gateway.base.limits import Model

TOPICS_MAX = 1_000  # mappings of one bridge
ADDRESSES_MAX = 5
"""Addresses of one bridge: as many as the client tries in a round (`gateway.client.redial`)."""


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text} is not HOST:PORT; write e.g. broker.example.net:1883")
    return text


def _prefix(text: str) -> str:
    if any(c in text for c in "+#\0"):
        raise ValueError(f"prefix {text} holds a wildcard; write the beginning of a topic, e.g. factory/")
    return text


Address = Annotated[str, AfterValidator(_address)]
Prefix = Annotated[str, AfterValidator(_prefix)]


class BridgeTopic(Model):
    """Topics crossing the bridge: LOCAL_PREFIX + `filter` here, REMOTE_PREFIX + `filter` at the other broker."""

    filter: str = Field(default="#", description="without either prefix")
    direction: Literal["out", "in", "both"] = Field(default="out", description="out: from here to there")
    qos: Literal[0, 1, 2] = Field(default=1, description="with which it crosses at most")
    local_prefix: Prefix = Field(default="", description="what such topics begin with here")
    remote_prefix: Prefix = Field(default="", description="what they begin with there")

    @model_validator(mode="after")
    def _are_filters(self) -> BridgeTopic:
        try:
            check_filter(self.local)
            check_filter(self.remote)
        except TopicError as error:
            raise ValueError(str(error)) from None
        if self.local.startswith("$share/") or self.remote.startswith("$share/"):
            raise ValueError("a shared subscription cannot cross a bridge; write its filter")
        return self

    @property
    def local(self) -> str:
        return self.local_prefix + self.filter

    @property
    def remote(self) -> str:
        return self.remote_prefix + self.filter


class BridgeTls(Model):
    """TLS towards the other broker. Its certificate is checked against `cafile` and `capath`, or else against the
    authorities of this system.
    """

    cafile: Path | None = Field(default=None, description="whom to trust, PEM; absent: whom this system knows")
    capath: Path | None = Field(default=None, description="the same as a directory of hashed names, as OpenSSL has it")
    certfile: Path | None = Field(default=None, description="our client certificate, PEM")
    keyfile: Path | None = Field(default=None, description="its key, a private file")
    check_hostname: bool = Field(default=True, description="false: any certificate that the CA signed")

    @model_validator(mode="after")
    def _is_complete(self) -> BridgeTls:
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile go together; give both")
        return self


class BridgeSettings(Model):
    """Settings of a bridge. A bridge keeps a session at the other broker and a queue here, so that QoS 1 and 2 lose
    nothing while either is away.
    """

    addresses: list[Address] = Field(min_length=1, max_length=ADDRESSES_MAX, description="tried in this order")
    version: Literal["5", "3.1.1"] = Field(default="5", description="of MQTT, at the other broker")
    try_private: bool = Field(
        default=True,
        description="3.1.1 only: say first by protocol level 0x56 that we are a VeilMQ, which another one"
        " answers with MQTT 5, then by 0x84 that we are a bridge, then neither",
    )
    client_id: str = Field(default="", description="at the other broker; absent: made of our name and the bridge's")
    username: str | None = Field(default=None, description="our account there")
    password_file: Path | None = Field(default=None, description="a private file with the password alone")
    tls: BridgeTls | None = Field(default=None, description="absent: without TLS")
    keep_alive_s: int = Field(default=60, ge=5, le=65_535, description="how soon a dead connection is noticed")
    session_expiry_s: int = Field(default=7 * 86_400, ge=0, le=0xFFFF_FFFF, description="of ours there; MQTT 5 only")
    broker: str = Field(
        default="", description="what the other broker is called; equal at gateways whose bridges lead to the same one"
        " by different addresses, and unlike where equal addresses mean different brokers"
    )  # fmt: skip
    topics: list[BridgeTopic] = Field(min_length=1, max_length=TOPICS_MAX, description="what crosses the bridge")
    queue_messages: int = Field(default=100_000, ge=1, description="what waits here for it; then the oldest go")
    queue_bytes: int = Field(default=256 << 20, ge=65_536, description="their bytes")
    packet_bytes: int | None = Field(
        default=None,
        ge=20,
        description="the largest packet for the other broker, where it does not say itself what it takes",
    )
    status_topic: str | None = Field(
        default=None, description="1 or 0, retained, here: whether the other broker is reached"
    )

    def anchored(self, directory: Path) -> BridgeSettings:
        """Returns the settings with relative paths taken from `directory`."""
        tls = self.tls
        if tls is not None:
            names = ("cafile", "capath", "certfile", "keyfile")
            found = {name: directory / path.expanduser() for name in names if (path := getattr(tls, name)) is not None}
            tls = tls.model_copy(update=found)
        password_file = self.password_file and directory / self.password_file.expanduser()
        return self.model_copy(update={"tls": tls, "password_file": password_file})

    @model_validator(mode="after")
    def _settings_fit(self) -> BridgeSettings:
        if self.password_file is not None and self.username is None:
            raise ValueError("password_file without username; give both")
        return self
