"""The signed overlay as a file of a running process: replaced files are noticed, newer versions from links are
written.

A change also updates TLS and the process's own key. `bridge.membership.adopting` decides which document is believed
and adopted; `overlay_file` and `rotation` make and verify files. Every error here is a line in the log: a running
process continues with its present state.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from bridge.contract import Prove
from bridge.document import Overlay, OverlayError
from gateway.base import FileStamp, PrivateFileError, Stamps, stamp
from gateway.base.log_events import LogEvent
from gateway.client import LinkTls, TlsError
from gateway.trust import rotation
from gateway.trust.domains import PREVIOUS, Card, LocalIdentity, read_public
from gateway.trust.errors import TrustError
from gateway.trust.evidence_file import keep_evidence
from gateway.trust.overlay_file import MAX_OVERLAY_BYTES, save_overlay
from keys.identity import Identity

log = logging.getLogger("veilmq.overlay")

LOOK_EVERY_S = 2.0
"""Seconds between checks of the file by one `stat`: no signal is needed, which a container might not pass on."""


class LiveOverlay:
    """The overlay file of a process.

    `local`: the process's identity. `seen`: the file's stamp from before `overlay` was read from it, so that a
    replacement meanwhile is not missed.
    """

    def __init__(
        self, path: Path, local: LocalIdentity, tls: LinkTls, overlay: Overlay, seen: FileStamp | None
    ) -> None:
        self._path, self._pin = path, local.directory / "overlay.pin"
        self.local, self.tls, self.overlay = local, tls, overlay
        self._newest = overlay  # may take effect only after a restart
        self._seen = seen
        self._shown = Stamps((local.cert,))

    def changed_content(self) -> bytes | None:
        """Returns the file's unverified content if it was replaced since the last call, else None."""
        self._drop_previous()
        self._show_renewed()
        now = stamp(self._path)
        if now in (None, self._seen):
            return None
        self._seen = now
        try:
            return read_public(self._path, MAX_OVERLAY_BYTES)
        except TrustError as error:
            LogEvent.OVERLAY_NOT_READ.say(log, error)
            return None

    def keep_overlay(self, overlay: Overlay) -> None:
        """Writes a newer verified overlay, so that a restart begins with it."""
        self._newest = overlay
        if stamp(self._path) not in (None, self._seen):
            return  # replaced a moment ago: `changed_content` comes first, then `complete`
        try:
            self._seen = save_overlay(self._path, self._pin, overlay, self._seen) or self._seen
        except (TrustError, OverlayError, PrivateFileError, OSError) as error:
            LogEvent.OVERLAY_NOT_KEPT.say(log, overlay.policy.version, error)

    def complete(self) -> None:
        """Replaces a file that was put there and checked, if it is older than our overlay or lacks endorsements."""
        self.keep_overlay(self._newest)

    def keep_evidence(self, effect: Prove) -> None:
        """Keeps evidence beside the identity, once for each author and lie."""
        try:
            path = keep_evidence(self.local.directory, effect.evidence, effect.proven)
        except OSError as error:
            LogEvent.EVIDENCE_NOT_KEPT.say(log, effect.proven.says, error)
            return
        if path is not None:
            LogEvent.EVIDENCE_KEPT.say(log, effect.proven.says, path)

    def adopt_overlay(self, overlay: Overlay) -> Identity | None:
        """Keeps the overlay, and trusts its members on links from the next handshake on.

        If the overlay lists the key that `veilmq trust rotate` prepared for this member, takes and shows the key, and
        returns the new identity.
        """
        self.keep_overlay(overlay)
        before, self.overlay = self.overlay, overlay
        try:
            self.tls.trust(overlay.members)
        except TlsError as error:
            LogEvent.AUTHORITY_NOT_TRUSTED.say(log, error)
        if overlay.policy.version != before.policy.version:
            LogEvent.OVERLAY_ADOPTED.say(log, overlay.policy.version, overlay.policy.overlay)
        for region, latest in overlay.latest.items():
            views = overlay.open_views(region)
            if region in before.latest and views != before.open_views(region):
                said = " and ".join(f"{view.number} ({', '.join(view.members)})" for view in views)
                LogEvent.VIEW_CHANGED.say(log, latest.name, said)
        return self._take_next()

    def _take_next(self) -> Identity | None:
        member = self.overlay.members.get(self.local.name)
        if member is None or member.certificate.public_key == self.local.identity.public_bytes:
            return None
        try:
            self.local = take_listed_key(self.local, self.overlay)
            self.tls.show(self.local.cert, self.local.key_path)
        except (TrustError, TlsError) as error:
            LogEvent.KEY_NOT_OURS.say(log, error)
            return None
        LogEvent.KEY_ROTATED.say(log, self.local.name)
        return self.local.identity

    def _drop_previous(self) -> None:
        """Erases the key from before a rotation once the overlay no longer lists it."""
        if not (self.local.directory / PREVIOUS).exists():
            return
        try:
            if rotation.drop_previous(self.local.directory, self.overlay, int(time.time() * 1000)):
                LogEvent.PREVIOUS_KEY_ERASED.say(log, self.local.name)
        except TrustError as error:
            LogEvent.PREVIOUS_KEY_NOT_ERASED.say(log, error)

    def _show_renewed(self) -> None:
        """Shows a TLS certificate the trust domain renewed, from the next handshake on."""
        if not self._shown.have_changed():
            return
        try:
            self.tls.show(self.local.cert, self.local.key_path)
        except (TlsError, OSError, ValueError) as error:
            LogEvent.CERTIFICATE_NOT_RENEWED.say(log, "links", error)
        else:
            LogEvent.CERTIFICATE_RENEWED.say(log, "links", self.local.cert)


def take_listed_key(local: LocalIdentity, overlay: Overlay) -> LocalIdentity:
    """Returns the identity to run as: the present one while the overlay lists its key first, else a prepared next one.

    The former key stays in use while the overlay lists it as the former one and no next key is prepared. Raises
    TrustError.
    """
    member = overlay.members.get(local.name)
    if member is None or member.certificate.public_key == local.identity.public_bytes:
        return local
    wanted, prepared = member.certificate.public_key, local.directory / rotation.NEXT
    if (prepared / "card.json").exists() and Card.load(prepared / "card.json").public_key == wanted:
        rotation.take_next(local.directory)
        return LocalIdentity.load(local.directory)
    if local.identity.public_bytes in {certificate.public_key for certificate in member.certificates}:
        return local
    raise TrustError(f"{local.directory}: holds no key that the overlay lists for {local.name}; ask its owner for it")
