"""The files a running member of the overlay keeps, behind the effects of its node asking for it.

Fetched keys, split seeds of ended epochs, a key server's material and archive, the overlay file. Nothing is decided
here: when something is kept and when it ends is said by the node and by the owner's calendar.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from bridge.document import Overlay
from gateway.base.log_events import LogEvent
from gateway.data import DataDirectory, StoreError
from gateway.overlay.key_cache import KeyCache
from gateway.overlay.key_material import KeyMaterial, KeyMaterialError
from gateway.trust import LiveOverlay
from keys.epochs import ScopeKeys
from keys.identity import CARRIERS, Role

log = logging.getLogger("veilmq.keys")


class Keeping:
    """A keeper of a party's state on disk. `cache` for a party that fetches keys, `material` for a key server."""

    def __init__(
        self,
        data: DataDirectory,
        live: LiveOverlay,
        keys: ScopeKeys,
        cache: KeyCache | None = None,
        material: KeyMaterial | None = None,
    ) -> None:
        self.data, self.live, self._keys = data, live, keys
        self._cache, self._material = cache, material
        self._epoch: int | None = None
        self._archives_owed: dict[int, bytes | None] = {}
        self._material_owed: bytes | None = None
        self._refused = ""

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self.live.overlay

    def removed(self) -> None:
        """The overlay has no use for us any more: say so, and erase what we split shares by."""
        overlay, name = self.overlay, self.live.local.name
        if name in overlay.members:
            region = overlay.latest[overlay.certificate(name).region]
            LogEvent.DETACHED.say(log, region.number, region.name)
        else:
            LogEvent.NOT_LISTED.say(log)
        self._erase_seeds(lambda _: True)

    def recognise(self, certificate_der: bytes) -> str | None:
        """The member whose key a TLS certificate shows."""
        return self.live.tls.recognise(certificate_der)

    def listeners(self, peers: Sequence[str]) -> list[str]:
        """Of our peers those we dial: whoever has an address, but replicas and key servers dial no gateways."""
        members = self.live.overlay.members
        return sorted(p for p in peers if p in members and members[p].certificate.role in (*CARRIERS, Role.KEY_SERVER))

    # ---------------------------------------------------------------------------------------------- keys

    def keys_changed(self, now: float) -> None:
        """Keep the fetched keys that may still be needed after a restart: of live epochs and the next."""
        if self._cache is not None:
            calendar = self.overlay.policy.calendar
            oldest = max(0, calendar.epoch_at(now) - 1 - calendar.history_epochs)
            self._cache.save(self._keys, oldest)

    def keep_material(self, material: bytes) -> None:
        """Stores material; after a failure of the disk it is offered again: erased epochs must not stay there."""
        self._material_owed = material
        self._pay()

    def keep_archive(self, epoch: int, content: bytes | None) -> None:
        """Before the material that could make it again is overwritten, so it holds that up while the disk refuses."""
        self._archives_owed[epoch] = content
        self._pay()

    def _pay(self) -> None:
        assert self._material is not None
        try:
            for epoch in list(self._archives_owed):
                self._material.archive(epoch, self._archives_owed[epoch])
                del self._archives_owed[epoch]
            if self._material_owed is not None:
                self._material.keep_material(self._material_owed)
                self._material_owed = None
            self._refused = ""
        except KeyMaterialError as error:
            if str(error) != self._refused:
                LogEvent.KEY_MATERIAL_REFUSED.say(log, error)
                self._refused = str(error)

    def end_epochs(self, now: float) -> None:
        """Every second or so: what an epoch's end asks for."""
        if self._archives_owed or self._material_owed is not None:
            self._pay()
        calendar = self.overlay.policy.calendar
        if calendar.epoch_at(now) == self._epoch:
            return
        if not self._erase_seeds(lambda e: e < calendar.epoch_at(now) and not calendar.live(e, now)):
            return
        # Not before the former epoch is over for everybody is there nothing left to do in this one.
        former = calendar.epoch_at(now) - 1
        self._epoch = calendar.epoch_at(now) if former < 0 or not calendar.live(former, now) else None
        self.keys_changed(now)

    def _erase_seeds(self, is_over: Callable[[int], bool]) -> bool:
        """Erases seeds of ended epochs; returns False if the disk did not allow it."""
        try:
            gone = self.data.erase_seeds(is_over)
        except StoreError as error:
            LogEvent.SPLIT_SEEDS_NOT_ERASED.say(log, error)
            return False
        if gone:
            LogEvent.SPLIT_SEEDS_ERASED.say(log, ", ".join(map(str, gone)))
        return True
