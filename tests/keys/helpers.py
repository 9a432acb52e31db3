"""What several tests of `keys` need: repeatable bytes, a made key, and the strictness every frame must have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pytest

from keys.columnsearch import ColumnSearch, FoundColumns
from keys.envelope import DataKey, KeyHeader, MessageHeader, Mode, check_share, make_key, open_key
from keys.epochs import KeyName
from keys.errors import BadContent, BadFrame, BadShare, KeysError
from keys.identity import Identity
from keys.sealedbox import BoxKey
from keys.sharetree import Hop, Share, check_label, resplit

SCOPE_KEY = bytes(range(100, 132))


def stream(seed: str) -> Callable[[int], bytes]:
    """`random(n)` that repeats itself for equal seeds."""
    count = 0

    def take(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{seed}/{count}".encode()).digest(size)

    return take


PUBLISHER = Identity.generate(stream("publisher")(32))
STRANGER = Identity.generate(stream("stranger")(32))


def path(*counts: int, view: int = 7) -> tuple[Hop, ...]:
    """Regions 1, 2, ... of so many replicas each."""
    return tuple(Hop(region, view, count // 2 + 1, count) for region, count in enumerate(counts, 1))


@dataclass
class Made:
    """A data key with everything its publisher knows, and the shares that the last region would hold."""

    header: KeyHeader
    key: DataKey
    secret: bytes
    hops: tuple[Hop, ...]
    shares: list[Share]

    def accept_level1(self, place: int, value: bytes) -> bool:
        return check_share(self.header, place, value)

    def accept_secret(self, secret: bytes) -> bool:
        try:
            open_key(self.header, secret, SCOPE_KEY)
        except BadContent:
            return False
        return True


def _fits(share: Share, hops: Sequence[Hop]) -> bool:
    try:
        check_label(share, hops)
    except BadShare:
        return False
    return True


def recombine(
    shares: Iterable[Share],
    hops: Sequence[Hop],
    accept_row: Callable[[int, bytes], bool],
    accept: Callable[[bytes], bool],
) -> FoundColumns | None:
    """What a search finds in shares that came all at once, those left out whose label is of another path."""
    search = ColumnSearch(hops, accept_row, accept)
    search.add_shares(share for share in shares if _fits(share, hops))
    return search.search(1 << 20, {})


def secret_behind(
    shares: Iterable[Share], hops: Sequence[Hop], accept_row: Callable[[int, bytes], bool] = lambda place, value: True
) -> bytes:
    """The secret of shares that are enough."""
    found = recombine(shares, hops, accept_row, lambda secret: True)
    assert found is not None
    return found.secret


def made(*counts: int, seed: str = "made") -> Made:
    """A data key whose shares went through regions of so many replicas each."""
    hops = path(*counts)
    random = stream(seed)
    header, key, shares = make_key(PUBLISHER, KeyName("plant/#", 3, 0), hops, 1000, 64, SCOPE_KEY, random)
    secret = stream(seed)(32)  # the first thing that make_key draws
    for hop in hops[1:]:
        shares = [sub for share in shares for sub in resplit(share, header.digest, hop, replica_seed(share))]
    return Made(header, key, secret, hops, shares)


def replica_seed(share: Share) -> bytes:
    """The durable seed of the replica that holds `share`."""
    return stream(f"replica {share.label[-1].region}.{share.label[-1].place}")(32)


def message_header(key_id: bytes, sequence: int = 1001, **changes: object) -> MessageHeader:
    """A plausible header; `changes` replace fields."""
    fields: dict[str, object] = {
        "publisher": PUBLISHER.party_id,
        "key_id": key_id,
        "sequence": sequence,
        "previous": sequence - 1,
        "time_ms": 1_700_000_000_123,
        "deadline_ms": 0,
        "qos": 1,
        "retain": False,
        "tombstone": False,
        "mode": Mode.COPIES,
        "digests": (hashlib.sha256(b"content").digest(),),
    }
    return MessageHeader(**(fields | changes))  # type: ignore[arg-type]


def assert_strict(decode: Callable[[bytes], object], encode: Callable[[object], bytes], frame: bytes) -> None:
    """Re-encoding is identical; truncated, longer, of another version, kind or unknown flag: refused."""
    assert encode(decode(frame)) == frame
    for size in range(len(frame)):
        with pytest.raises(BadFrame):
            decode(frame[:size])
    for tail in (b"\0", b"\1", frame[:1], frame):
        with pytest.raises(BadFrame):
            decode(frame + tail)
    for version in (0, 2, 255):
        with pytest.raises(BadFrame):
            decode(bytes([version]) + frame[1:])
    for kind in (0, frame[1] + 1, 255):
        with pytest.raises(BadFrame):
            decode(bytes([frame[0], kind]) + frame[2:])
    for flag in (0x20, 0x40, 0x80):  # no frame has more than five
        with pytest.raises(BadFrame):
            decode(frame[:2] + bytes([frame[2] | flag]) + frame[3:])


def assert_canonical(decode: Callable[[bytes], object], encode: Callable[[object], bytes], data: bytes) -> None:
    """Arbitrary bytes are refused with an error of ours, or are the one encoding of what they say."""
    try:
        value = decode(data)
    except KeysError:
        return
    assert encode(value) == data


def bit_flips(frame: bytes) -> list[bytes]:
    """Every frame that differs from `frame` in one bit."""
    number = int.from_bytes(frame)
    return [(number ^ 1 << bit).to_bytes(len(frame)) for bit in range(8 * len(frame))]


def without_x25519(identity: Identity) -> BoxKey:
    """The key for boxes of somebody who broke X25519: the identity's private X25519 key, and no part of the other."""
    known = identity._box_key()
    thief = BoxKey(bytes(32), bytes(64))
    thief._agreement, thief.agreement_bytes = known._agreement, known.agreement_bytes
    return thief
