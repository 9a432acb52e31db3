"""Asking of replicas in another region: requests signed and sent along a way, pages opened.

A `replay` asks replicas of another region as if linked to them. Here requests of the replay become far requests, and
far pages become pages. Replicas on the way may drop anything: after a wait in vain the next way to the asked replica is
taken, until a way brings pages. Not here: passing on (`replica.far_passing`).

Source: docs/protocol-options.md §12.6.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace

from bridge.contract import (
    DOMAIN_FAR_PAGE,
    FAR_PAGE_BYTES,
    FAR_TOPIC,
    HISTORY_TOPIC,
    Count,
    Effect,
    FarPage,
    FarRequest,
    HistoryRequest,
    Received,
    Send,
    Wire,
    number_of,
)
from bridge.document import Overlay
from bridge.topology import FarWays
from bridge.wire import verify_author
from keys.errors import KeysError
from keys.identity import Identity
from keys.sealedbox import BoxKey

WAIT_S = 4.5  # a page that did not come by then was lost on the way: a replay asks again after 5 s


@dataclass(slots=True)
class _Asked:
    """A replica of another region: the number of the way taken, and open requests by digest with their times."""

    turn: int = 0
    open: dict[bytes, float] = field(default_factory=dict)


class FarAsking:
    """The far requests of one reader. `numbers` numbers them; `up`: the connected replicas of our region, kept by the
    caller.
    """

    def __init__(
        self,
        overlay: Overlay,
        name: str,
        identity: Identity,
        random: Callable[[int], bytes],
        numbers: Callable[[], int],
        up: Set[str],
    ) -> None:
        self._overlay, self._name, self._identity = overlay, name, identity
        self._random, self._numbers, self._up = random, numbers, up
        self._box_key: BoxKey | None = None
        self._asked: dict[str, _Asked] = {}
        self._digests: dict[bytes, str] = {}  # of open requests, with the asked replica

    @property
    def _home(self) -> int:
        return self._overlay.certificate(self._name).region

    def rotate_identity(self, identity: Identity) -> None:
        """Takes another key to sign with."""
        self._identity = identity

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay."""
        self._overlay = overlay
        for asked in self._asked.keys() - overlay.members.keys():
            for digest in self._asked.pop(asked).open:
                del self._digests[digest]

    def erase_box_key(self) -> None:
        """Erases the key for boxes, since no reading is under way. Which ways are good stays known."""
        self._box_key = None
        self._digests.clear()
        for asked in self._asked.values():
            asked.open.clear()

    def sent(self, send: Send, now: float) -> list[Effect]:
        """Returns a request as it leaves: to a replica of another region as a far request."""
        is_far = self._overlay.certificate(send.peer).region != self._home
        return self._far(send, now) if is_far else [send]

    def _far(self, send: Send, now: float) -> list[Effect]:
        asked = self._asked.setdefault(send.peer, _Asked())
        late = [digest for digest, at in asked.open.items() if now - at >= WAIT_S]
        for digest in late:
            del asked.open[digest], self._digests[digest]
        ways = FarWays(self._overlay, self._home, self._overlay.certificate(send.peer).region)
        asked.turn += 1 if late else 0
        for _ in range(ways.count):
            way = ways.way(send.peer, asked.turn % ways.count)
            if way[0] in self._up:
                break
            asked.turn += 1
        else:
            return []
        request = HistoryRequest.decode(send.wire.payload)
        inner = replace(request, most_bytes=min(request.most_bytes, FAR_PAGE_BYTES)).encode()
        key = self._key()
        is_hybrid = self._overlay.certificate(self._name).is_hybrid
        public = key.hybrid_bytes if is_hybrid else key.agreement_bytes
        made = FarRequest(self._name, send.peer, self._numbers(), public, inner, way).signed(self._identity)
        asked.open[made.digest] = now
        self._digests[made.digest] = send.peer
        return [Send(way[0], Wire(FAR_TOPIC, made.encode())), Count("far_asked", 1, send.peer)]

    def _key(self) -> BoxKey:
        if self._box_key is None:
            self._box_key = BoxKey(self._random(32), self._random(64))
        return self._box_key

    def open_far_page(self, event: Received, now: float) -> Received | None:
        """Returns the page in a far page, as from a linked replica; None for an unasked page, or a box for somebody
        else. Raises BadFrame, BadSignature: the sender should have dropped the page.
        """
        page = FarPage.decode(event.wire.payload)
        peer = self._digests.get(page.digest)
        if peer is None or self._box_key is None:
            return None
        verify_author(self._overlay.members[peer], DOMAIN_FAR_PAGE, page.signed_bytes(), page.signature, now)
        del self._digests[page.digest], self._asked[peer].open[page.digest]
        try:
            inner = self._box_key.open(page.box, page.info)
            number_of(inner)
        except KeysError:
            return None  # the asked replica signed it, and is as one that does not answer
        return Received(peer, Wire(HISTORY_TOPIC, inner), True)
