"""Last step of a publication at a gateway, in its turn: decryption, judgement and handing out to subscribers.

Errors found here are the publisher's own, and charged to the publisher. `collector` decides on the order, `unpacking`
on the records that may be delivered, `newest_retained` on the newest of several retained publications.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import Blame, Count, Effect
from bridge.document import ScopeSecret
from bridge.reader.key_opening import KeyRing
from bridge.reader.newest_retained import Joining, Rank
from bridge.reader.streams import Held
from bridge.reader.unpacking import Unpacked
from keys.envelope import DataKey, Mode
from keys.errors import BadContent, KeysError


class HandingOut:
    """Decryption and handing out of publications at one gateway."""

    def __init__(self, secrets: Sequence[ScopeSecret], keys: KeyRing[DataKey], joining: Joining) -> None:
        self._keys, self._joining = keys, joining
        self.adopt(secrets)

    def adopt(self, secrets: Sequence[ScopeSecret]) -> None:
        """Adopts the scopes that this gateway reads from now on."""
        self._secrets = {secret.scope.filter: secret for secret in secrets}

    def open(self, held: Held, late: bool) -> list[Effect]:
        """Decrypts a publication and hands it out. `late` is True if a later publication was handed out before."""
        admitted = held.admitted
        if held.is_over:
            return [Count("expired")]
        secret = self._secrets.get(admitted.scope.filter)
        try:
            clear = self._clear(held)
            if secret is None:
                raise BadContent("a scope that we do not read any more")
            found = Unpacked(secret, admitted, clear, held.arrived)
            if admitted.header.retain:
                found.check_retained(admitted, held.topic)
        except KeysError as error:
            return [Count("unopened"), Blame(admitted.publisher.name, False, str(error))]
        if admitted.header.retain and found.records:
            sent_ms, is_to_come = found.records[0].publication.time_ms, self._joining.is_to_come(held)
            told = Rank.OVERTAKEN if is_to_come else self._joining.opened(held, sent_ms)
            if told is Rank.KNOWN:
                return [Count("duplicates_dropped")]
            if told is Rank.OVERTAKEN and held.replayed and self._joining.may_be_old(held):
                return [Count("replays_dropped")]
            if told is Rank.OVERTAKEN:  # to retain it now would bring back an old value
                found.as_live()
                late = late or self._joining.is_behind(held)
        return found.delivered(admitted.publisher.name, admitted.header.time_ms, late, held.replayed)

    def _clear(self, held: Held) -> bytes:
        """Returns the clear content of a publication. Raises BadContent."""
        header = held.admitted.header
        assert held.content is not None
        if header.mode is Mode.PLAIN:
            return held.content
        key = self._keys.opened(held.admitted)
        if key is None:
            raise BadContent("publication names a key that is not here any more")
        return key.open(header.prefix(), header.sequence, held.topic, held.content)
