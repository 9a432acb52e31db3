"""A replica's part in one wrapped key: believed wraps of others, and own ones (docs/protocol.md §3.5).

Behind the first region a replica gives a next region a share of its wrap key in place of its shares, and the wraps of
its shares beside it; readers of its own region get its shares as they are. Wraps of others go on to all, once they are
believed. Not here: when what goes to whom (`resplitting`), sealing (`keys.wrapping`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from keys.envelope import KeyHeader
from keys.sharetree import Label, Place, Share
from keys.wrapping import Way, Wrap, WrapKey, WrapName, Wraps, encode_wraps, honest_needed, wrap_key


class WrappedKey:
    """The wraps of one key at one replica. `way`: from the publisher's region to ours."""

    def __init__(self, header: KeyHeader, way: Way, own: Place) -> None:
        self._header, self._way, self._own = header, way, own
        self.others = Wraps(honest_needed(way[-2]) if len(way) > 1 else 1)
        """Wraps of the regions before ours."""
        self._key: Share | None = None
        self._sealed: dict[Label, Wrap] = {}  # of our shares; at most one for each replica before us

    @property
    def wraps_itself(self) -> bool:
        """True behind the publisher's region, whose replicas split their shares as ever."""
        return len(self._way) > 1

    def wrap_key_share(self, seed: bytes) -> Share:
        """Returns our wrap key, as what is split for a next region."""
        if self._key is None:
            self._key = wrap_key(self._header.digest, self._own, seed)
        return self._key

    def frame(
        self, came: Collection[Label | WrapName], shares: Mapping[Label, Share], seed: bytes | None
    ) -> bytes | None:
        """Returns a frame of the wraps among all that came, None without any. `seed`: for a replica behind us, which
        gets our own wraps, too; None for a reader.
        """
        wraps = [Wrap(name, self.others.believed[name]) for name in came if isinstance(name, WrapName)]
        if seed is not None and self.wraps_itself:
            wraps += self._own_wraps([shares[label] for label in came if not isinstance(label, WrapName)], seed)
        # the way of the receiver behind us has our region inside; a reader's ends here
        return encode_wraps(self._header.key_id, self._way, wraps) if wraps else None

    def _own_wraps(self, shares: Collection[Share], seed: bytes) -> list[Wrap]:
        lacking = [share for share in shares if share.label not in self._sealed]
        if lacking:
            sealing = WrapKey(self.wrap_key_share(seed).value, self._header.digest, self._own)
            self._sealed.update((share.label, sealing.seal(share)) for share in lacking)
        return [self._sealed[share.label] for share in shares]
