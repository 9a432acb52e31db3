"""Forgeries by an attacker holding a publication on its way: its reads and alterations unnoticed (E1, E2).

The bytes, keys and signatures are from `keys`. The attacker has the secret of the data key (as a node without
replicas would), keys of other topics and epochs, and an identity of its own; not the topic's epoch key and not the
publisher's signing key. Not here: which publications cross bad nodes (`pubsub`), forwarding by an honest node
(`firsthop`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bridge.contract import Numbered, Publication, packed
from keys.envelope import (
    MessageHeader,
    Mode,
    SequenceWindow,
    SignedHeader,
    content_digest,
    make_key,
    open_key,
    sign_header,
    verify_header,
)
from keys.epochs import KeyName, scope_key
from keys.errors import BadContent, Expired, KeysError, Replayed
from keys.identity import Identity
from keys.records import Records
from keys.sharetree import Hop
from papers.experiments.draws import Draws

NOW = 1_800_000_000.0
MAX_DELAY_S = 300.0  # max_delay of E1
TOPIC = "plant/speed"
PAYLOAD_BYTES = 64
EPOCH = 7


@dataclass(frozen=True, slots=True)
class ForgeryPassing:
    """A publication as it crosses a node: its topic, the frame of its signed header (empty: none), its content."""

    topic: str
    header: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class Findings:
    """The attacker's findings from a publication."""

    read: bool
    altered: bool

    @property
    def violated(self) -> bool:
        return self.read or self.altered


class Transit:
    """A publisher and an authorised subscriber of a topic, and an attacker holding every message between them."""

    def __init__(self, draws: Draws, *, guarded: bool, insider: bool = False) -> None:
        """Draws the parties.

        `insider`: the attacker is an authorised subscriber, too, so it can read; that is the control of the test.
        """
        root = draws.randbytes(32)
        self._guarded = guarded
        self._draws = draws
        self._publisher = Identity.generate(draws.randbytes(32))
        self._attacker = Identity.generate(draws.randbytes(32))
        name = KeyName(TOPIC, EPOCH, 0)
        self._scope_key = scope_key(root, TOPIC, EPOCH)
        hop = Hop(1, 1, 1, 1)
        self._key_header, self._data_key, shares = make_key(
            self._publisher, name, (hop,), 1, 1 << 20, self._scope_key, draws.randbytes
        )
        self._secret = shares[0].value
        known = [scope_key(root, TOPIC, EPOCH - 1), scope_key(root, "plant/other", EPOCH), draws.randbytes(32)]
        self._known = [*known, self._scope_key] if insider else known
        self._own_header, self._own_key, _ = make_key(
            self._attacker, name, (hop,), 1, 1 << 20, self._known[0], draws.randbytes
        )
        self._sequence = 0

    def attack(self) -> Findings:
        """Sends a single publication through the attacker, which tries all its attacks."""
        payload = self._draws.randbytes(PAYLOAD_BYTES)
        passing, header = self._publish_payload(payload)
        read = payload in passing.content or any(payload in text for text in self._openings(passing, header))
        subscriber = _Subscriber(self)
        altered = any(subscriber.believes(forged) not in (None, payload) for forged in self._forgeries(passing, header))
        # Only now the true one: whatever the attacker sends before it must not keep it out.
        if subscriber.believes(passing) != payload:
            raise AssertionError("the subscriber refused a true publication")
        return Findings(read, altered or subscriber.believes(passing) is not None)

    def _publish_payload(self, payload: bytes) -> tuple[ForgeryPassing, MessageHeader]:
        self._sequence += 1
        bare = unsigned_header(self._publisher.party_id, self._key_header.key_id, self._sequence)
        if not self._guarded:
            return ForgeryPassing(TOPIC, b"", payload), bare
        clear = record(bare, payload)
        sealed = self._data_key.seal(bare.prefix(), self._sequence, TOPIC, clear)
        header = replace(bare, digests=(content_digest(sealed),))
        return ForgeryPassing(TOPIC, sign_header(self._publisher, header, TOPIC).encode(), sealed), header

    def _openings(self, passing: ForgeryPassing, header: MessageHeader) -> Iterator[bytes]:
        """Yields the content opened under every key the attacker has."""
        for key in self._known:
            # The check value is only a hint in clear; with one of its own the attacker gets as far as the commitment.
            guess, _, _ = make_key(
                self._attacker, self._key_header.epoch_key, self._key_header.hops, 1, 1, key, self._draws.randbytes
            )
            try:
                opened = open_key(replace(self._key_header, kcv=guess.kcv), self._secret, key)
                yield opened.open(header.prefix(), header.sequence, passing.topic, passing.content)
            except KeysError:
                continue

    def _forgeries(self, passing: ForgeryPassing, header: MessageHeader) -> Iterator[ForgeryPassing]:
        """Yields everything a node could hand on instead."""
        flipped = flip(passing.content, self._draws)
        yield replace(passing, content=flipped)
        yield replace(passing, topic=TOPIC + "/x")
        if not self._guarded:
            return
        signed = SignedHeader.decode(passing.header)
        fitting = replace(header, digests=(content_digest(flipped),))
        yield ForgeryPassing(TOPIC, replace(signed, header=fitting).encode(), flipped)
        yield replace(passing, header=flip(passing.header, self._draws))
        own = unsigned_header(self._publisher.party_id, self._own_header.key_id, header.sequence + 1)
        clear = record(own, self._draws.randbytes(PAYLOAD_BYTES))
        content = self._own_key.seal(own.prefix(), own.sequence, TOPIC, clear)
        own = replace(own, digests=(content_digest(content),))
        for victim_named in (own, replace(own, publisher=self._attacker.party_id)):
            yield ForgeryPassing(TOPIC, sign_header(self._attacker, victim_named, TOPIC).encode(), content)


class _Subscriber:
    """A subscriber that verifies and opens as every honest receiver does; without guards it believes all."""

    def __init__(self, transit: Transit) -> None:
        self._guarded = transit._guarded
        self._public = transit._publisher.public_bytes
        self._key = open_key(transit._key_header, transit._secret, transit._scope_key)
        self._window = SequenceWindow()

    def believes(self, passing: ForgeryPassing) -> bytes | None:
        """Returns the payload that it takes for the publisher's, None if it refuses."""
        if not self._guarded:
            return passing.content
        try:
            return self._opened_payload(passing)
        except KeysError:
            return None

    def _opened_payload(self, passing: ForgeryPassing) -> bytes:
        signed = SignedHeader.decode(passing.header)
        header = signed.header
        verify_header(header, passing.header, passing.topic, self._public)
        if abs(NOW - header.time_ms / 1000) > MAX_DELAY_S:
            raise Expired("older than the receiver takes")
        if header.digests != (content_digest(passing.content),):
            raise BadContent("content does not match the signed header")
        if self._window.seen(header.sequence):
            raise Replayed("the sequence was seen before")
        clear = self._key.open(header.prefix(), header.sequence, passing.topic, passing.content)
        return Records.decode(clear).payload(0)


def record(header: MessageHeader, payload: bytes) -> bytes:
    """Returns the content to seal under a header: a publication."""
    return packed(TOPIC, [Numbered(header.sequence, Publication(TOPIC, payload, 1, time_ms=header.time_ms))]).payload


def unsigned_header(publisher: bytes, key_id: bytes, sequence: int) -> MessageHeader:
    """Returns a header of now that lacks the digest of its content."""
    return MessageHeader(
        publisher=publisher,
        key_id=key_id,
        sequence=sequence,
        previous=0,
        time_ms=int(NOW * 1000),
        deadline_ms=0,
        qos=1,
        retain=False,
        tombstone=False,
        mode=Mode.COPIES,
        digests=(),
    )


def flip(data: bytes, draws: Draws) -> bytes:
    """Returns `data` with a bit changed."""
    at = draws.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draws.randrange(8)]) + data[at + 1 :]
