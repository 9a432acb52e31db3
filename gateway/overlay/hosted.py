"""Hosted brokers, somebody's ordinary MQTT 5 brokers in the places of replicas: how we reach them, which will not do.

There is nothing of ours on them. A connection each, an ordinary client's: TLS with the host's name checked, against
the authority the signed overlay names or those the system knows; user name and password or a client certificate from
our own configuration. What comes from there is believed as far as its signatures go (`bridge`). Not here: what the
probe of `veilmq check` finds out (`probing`).
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.document import Overlay
from gateway.base import ConfigError, Hosted, PrivateFileError, load_hosted, read_private
from gateway.client import MqttClient, split_host_port
from gateway.mqtt5.packets import ConnAck

PLAIN = "tcp://"
"""What the address of a broker without TLS begins with."""
KEEP_ALIVE_S = 30
PACKET_BYTES_MIN = 4096
"""A broker that takes only smaller packets has no room for keys and content."""


@dataclass(frozen=True, slots=True)
class Login:
    """The login at one hosted broker; empty: without a name."""

    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    certfile: Path | None = None
    keyfile: Path | None = None


NOBODY = Login()


def logins(overlay: Overlay, name: str, given: Mapping[str, Hosted] | Path | None) -> dict[str, Login]:
    """Returns the logins at the hosted brokers of member `name`'s region, from the configuration or a file of its form.

    Raises ConfigError, which never shows a password.
    """
    settings = load_hosted(given) if isinstance(given, Path) else given or {}
    ours = of_region(overlay, name)
    for broker in settings:
        if broker not in ours:
            known = ", ".join(ours) or "none"
            raise ConfigError(f"overlay.hosted: {broker} is no hosted broker of our region; known are {known}")
    return {broker: _login(broker, one) for broker, one in settings.items()}


def of_region(overlay: Overlay, name: str) -> tuple[str, ...]:
    """The hosted brokers that member `name` has links with; key servers are in no region and have none."""
    view = overlay.views.get(overlay.certificate(name).region)
    return tuple(broker for broker in view.members if broker in overlay.hosted) if view else ()


def _login(broker: str, settings: Hosted) -> Login:
    try:
        password = None
        if settings.password_file is not None:
            password = read_private(settings.password_file).rstrip(b"\r\n")
        if settings.keyfile is not None:
            read_private(settings.keyfile)
    except PrivateFileError as error:
        raise ConfigError(f"overlay.hosted: {broker}: {error}") from None
    return Login(settings.username, password, settings.certfile, settings.keyfile)


def dial(
    overlay: Overlay, name: str, broker: str, login: Login, *, session_expiry_s: int, **options: Any
) -> MqttClient:
    """The client that member `name` reaches a hosted broker with. Raises ConfigError for a certificate that is none.

    `options`: further arguments of `MqttClient`.
    """
    address = overlay.members[broker].address
    return MqttClient(
        *split_host_port(address.removeprefix(PLAIN)),
        ssl=None if address.startswith(PLAIN) else tls_context(overlay, broker, login),
        username=login.username,
        password=login.password,
        **{
            "client_id": client_id(overlay, name), "keep_alive_s": KEEP_ALIVE_S, "clean_start": not session_expiry_s,
            "session_expiry_s": session_expiry_s, "unusable": unusable, **options,
        },
    )  # fmt: skip


def client_id(overlay: Overlay, name: str) -> str:
    """Returns a client id that is constant over starts and unique: 23 characters that every broker takes (MQTT 5.0
    §3.1.3.1).
    """
    digest = hashlib.sha256(overlay.owner + overlay.policy.overlay.encode() + b"\0" + name.encode()).hexdigest()
    return f"veilmq{digest[:17]}"


def tls_context(overlay: Overlay, broker: str, login: Login) -> ssl.SSLContext:
    """Checks the host's name; believes the authority in the overlay, or without one those the system knows."""
    authority = overlay.members[broker].ca
    try:
        context = ssl.create_default_context(cadata=authority or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if login.certfile is not None:
            context.load_cert_chain(login.certfile, login.keyfile)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(f"overlay.hosted: {broker}: certificates cannot be read ({error}); correct that") from None
    return context


def unusable(connack: ConnAck) -> str:
    """Returns the property of a CONNACK that rules a broker out, with the cure; empty if none does (docs/protocol.md
    §2.10).
    """
    offer = connack.properties
    cure = "take another broker, or raise its limits"
    if offer.maximum_qos is not None and offer.maximum_qos < 1:
        return f"takes QoS {offer.maximum_qos} at most, and publications need QoS 1; {cure}"
    if offer.retain_available == 0:
        return f"does not retain messages; {cure}"
    if offer.wildcard_subscription_available == 0:
        return f"takes no subscriptions with wildcards; {cure}"
    if offer.maximum_packet_size is not None and offer.maximum_packet_size < PACKET_BYTES_MIN:
        return f"takes packets of {offer.maximum_packet_size} bytes, less than {PACKET_BYTES_MIN}; {cure}"
    return ""
