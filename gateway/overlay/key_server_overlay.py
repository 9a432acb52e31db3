"""The overlay of a key server: key material and archives are kept on disk."""

from __future__ import annotations

from gateway.overlay.broker_overlay import BrokerOverlay


class KeyServerOverlay(BrokerOverlay):
    """The overlay of a key server."""

    def keep_material(self, material: bytes) -> None:
        self._keeping.keep_material(material)

    def keep_archive(self, epoch: int, content: bytes | None) -> None:
        self._keeping.keep_archive(epoch, content)
