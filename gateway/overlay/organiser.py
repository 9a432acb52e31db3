"""The organiser as a process: links to all replicas of its region, its overlay file, the highest number on disk.

It hears summaries, versions, swaps and endorsements from them, and tells them what it signs; nothing else crosses these
links. The rules are in `bridge.organiser`; what is said to a person is the command's.
"""

from __future__ import annotations

import logging
import random as random_module
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bridge.contract import Received, Wire
from bridge.document import ORGANISERS, Overlay
from bridge.organiser import HIGHEST, OrganiserNode
from gateway.base import Figures, PrivateFileError, read_private, stamp, write_private
from gateway.base.log_events import LogEvent
from gateway.client import LinkTls, MqttClient
from gateway.mqtt5.packets import Publish
from gateway.overlay.dials import Dials
from gateway.overlay.driver import Driver, Linked
from gateway.overlay.region_client import dial
from gateway.trust import RESTORED, LiveOverlay, LocalIdentity, TrustError, load_overlay, take_listed_key

log = logging.getLogger("veilmq.links")

SESSION_EXPIRY_S = 0  # what was said while we were away is said again when we link up
NUMBER_FILE = "swaps"  # in the identity's directory: the highest number that was given


class Organiser(Linked):
    """The organiser of the tree. `signs`: True if it signs its proposals. Raises TrustError, OverlayError,
    TlsError.
    """

    def __init__(self, identity_dir: Path, overlay_file: Path, signs: bool) -> None:
        local = LocalIdentity.load(identity_dir)
        seen = stamp(overlay_file)
        overlay = load_overlay(overlay_file, int(time.time() * 1000), identity_dir / "overlay.pin")
        if local.name not in overlay.members:
            raise TrustError(f"{local.name} is no member of {overlay_file}; ask the owner to add your card")
        self.local = take_listed_key(local, overlay)
        if self.local.role not in ORGANISERS:
            raise TrustError(f"{local.name} is a {self.local.role}; take the identity of a gateway or an ingest job")
        self._number_file = identity_dir / NUMBER_FILE
        self._public = self.local.identity.public_bytes
        if signs:
            self._refuse_restored(identity_dir)
        self._tls = LinkTls(self.local.name, self.local.cert, self.local.key_path, overlay.members, time.time)
        self._live = LiveOverlay(overlay_file, self.local, self._tls, overlay, seen)
        self.node = OrganiserNode(
            overlay, self.local.identity, self.local.name, signs, self._highest(overlay) if signs else 0
        )
        self._dials = Dials(self._dial)
        self.figures = Figures(self.local.name, self.local.role.value, links=self._dials.link_states)
        self._driver = Driver(self.node, self._live, self._dials, self.figures, self)

    def start(self) -> None:
        """Connect to every replica of the region in the background. On an event loop."""
        self._dials.start(self.peers_to_dial(), self)
        self._driver.start()

    async def close(self) -> None:
        await self._driver.stop()
        await self._dials.close()

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self.node.overlay

    @property
    def errors(self) -> dict[str, str]:
        """Why there is no connection, by replica."""
        return {peer: client.last_error for peer, client in self._dials.items() if not client.connected}

    def _refuse_restored(self, identity_dir: Path) -> None:
        """Raises TrustError for a key that came from a backup: it may have given numbers since, and would give them
        again.
        """
        marker, name = identity_dir / RESTORED, self.local.name
        if marker.exists() and read_private(marker) == self._public.hex().encode():
            raise TrustError(
                f"{identity_dir}: comes from a backup, and later swaps may have been signed since; give {name} another "
                "key with `veilmq trust rotate`, so that no number is signed twice"
            )

    def _highest(self, overlay: Overlay) -> int:
        if not self._number_file.exists():
            ours = [swap for swap in (*overlay.swaps, *overlay.offered) if swap.certificate.public_key == self._public]
            if not ours:
                return 0
            raise TrustError(
                f"{self._number_file}: is lost, and {self.local.name} signed swaps; write the highest number that it "
                "gave into it, or give it another key with `veilmq trust rotate`"
            )
        try:
            return int(read_private(self._number_file))
        except (ValueError, PrivateFileError) as error:
            raise TrustError(
                f"{self._number_file}: does not hold the highest number that was signed ({error}); write that into it, "
                "or have the owner certify another key"
            ) from None

    def _dial(self, peer: str) -> MqttClient:
        client = dial(
            self.overlay, self.local.name, peer, self._tls, logins={}, session_expiry_s=SESSION_EXPIRY_S,
            manual_ack=True, random=random_module.random,
        )  # fmt: skip
        client.on_publishes = partial(self._published, peer, client)
        return client

    # -------------------------------------------------------------------------------- called by dials

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None:
        self._published(peer, client, (publish,))

    def _published(self, peer: str, client: MqttClient, publishes: Sequence[Publish]) -> None:
        for publish in publishes:
            client.acknowledge(publish)
            wire = Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)
            self._driver.handle(Received(peer, wire))

    # ------------------------------------------------------------------------------ hands of the driver

    def send_wire(self, peer: str, wire: Wire, ticket: int) -> None:
        client = self._dials.get(peer)
        if client is not None:
            client.publish(wire.topic, wire.payload, wire.qos, wire.retain, wire.properties)

    def keys_changed(self) -> None:
        raise AssertionError("the organiser has no epoch keys")

    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """On disk before anybody hears of it: of two swaps of a number the second would be proof against us."""
        for key, value in rows:
            assert key == HIGHEST
            assert value is not None
            write_private(self._number_file, b"%d\n" % int.from_bytes(value), replace=True)

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        self.local = self._live.local
        if removed:
            LogEvent.NOT_LISTED.say(log)

    def peers_to_dial(self) -> list[str]:
        return sorted(self.node.peers - self.overlay.hosted - set(self.overlay.policy.key_servers))
